"""Products of one row agree with float64, to the rounding of their result, for any size and layout."""

import pytest
import torch

from octavo.kernels import reference
from octavo.kernels.cuda.gemm import matvec

pytestmark = pytest.mark.gpu

EPS = 1e-5
# Norm of the difference over the norm of the result. The result's rounding may take half a unit of the last place, 2^-8
# or 2^-11, all of it where there is one result; the rest is for a norm that rounds a few elements the other way.
TOLERANCE = {torch.bfloat16: 5e-3, torch.float16: 7e-4}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
SIZES = pytest.mark.parametrize(
    "size", [(961, 576), (17, 2056), (1, 4096), (576, 1536), (2048, 8192), (130, 64), (130, 14336)], ids=str
)


def normal(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") * scale).to(dtype)


def apart(k: int, dtype: torch.dtype) -> torch.Tensor:
    """A row with something else around it."""
    return normal(1, k + 24, dtype=dtype)[:, 8 : 8 + k]


def poison(n: int, dtype: torch.dtype) -> None:
    """What the allocator gives out next is not a number."""
    torch.full((1, n), float("nan"), dtype=dtype, device="cuda")


def check(out: torch.Tensor, expected: torch.Tensor) -> None:
    assert out.shape == expected.shape
    error = ((out.double() - expected).norm() / expected.norm()).item()
    assert error < TOLERANCE[out.dtype], error


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.double() @ weight.double().T


@DTYPES
@SIZES
def test_linear_with_and_without_norm_and_bias(size: tuple[int, int], dtype: torch.dtype) -> None:
    n, k = size
    x, weight = apart(k, dtype), normal(n, k, dtype=dtype, scale=k**-0.5)
    norm, bias = normal(k, dtype=dtype), normal(n, dtype=dtype)
    normed = reference.rms_norm(x, norm, EPS)
    poison(n, dtype)
    check(matvec.norm_linear(x, norm, EPS, weight, bias), product(normed, weight) + bias.double())
    poison(n, dtype)
    check(matvec.norm_linear(x, None, 0.0, weight), product(x, weight))


@DTYPES
@SIZES
def test_the_activation_is_applied(size: tuple[int, int], dtype: torch.dtype) -> None:
    n, k = size
    x, weight, norm = apart(k, dtype), normal(2 * n, k, dtype=dtype, scale=k**-0.5), normal(k, dtype=dtype)
    gate, up = product(reference.rms_norm(x, norm, EPS), weight).chunk(2, dim=-1)
    poison(n, dtype)
    check(matvec.norm_linear_silu_mul(x, norm, EPS, weight), gate * gate.sigmoid() * up)


@DTYPES
@SIZES
def test_the_residual_is_added_in_place(size: tuple[int, int], dtype: torch.dtype) -> None:
    n, k = size
    x, weight = apart(k, dtype), normal(n, k, dtype=dtype, scale=k**-0.5)
    whole = normal(3, n + 5, dtype=dtype)
    before, residual = whole.clone(), whole[1:-1, 2 : 2 + n]
    expected = residual.double() + product(x, weight)
    matvec.linear_add(x, weight, residual)
    check(residual, expected)
    residual.copy_(before[1:-1, 2 : 2 + n])
    assert torch.equal(whole, before)


def test_the_same_call_gives_the_same_bits() -> None:
    x, weight = normal(1, 8192, dtype=torch.bfloat16), normal(2048, 8192, dtype=torch.bfloat16)
    assert torch.equal(*(matvec.norm_linear(x, None, 0.0, weight) for _ in range(2)))


def test_operands_that_do_not_fit_are_named() -> None:
    x, weight = normal(1, 64, dtype=torch.bfloat16), normal(5, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="weight: 56 columns"):
        matvec.norm_linear(x, None, 0.0, weight[:, :56])
    with pytest.raises(ValueError, match="x: rows must begin"):
        matvec.norm_linear(normal(1, 68, dtype=torch.bfloat16)[:, 4:], None, 0.0, weight)
    with pytest.raises(ValueError, match="x: 2 rows"):
        matvec.norm_linear(normal(2, 64, dtype=torch.bfloat16), None, 0.0, weight)
    with pytest.raises(ValueError, match="residual"):
        matvec.linear_add(x, weight, normal(1, 4, dtype=torch.bfloat16))
