"""Products of a medium batch agree with float64, to the rounding of their result, for any size, layout and plan."""

import pytest
import torch

from octavo.kernels.cuda.gemm import gemm
from octavo.kernels.cuda.gemm.gemm import GemmPlan

pytestmark = pytest.mark.gpu

# Norm of the difference over the norm of the result: rounding to half a unit of the last place, as it is on average. Of
# a few numbers one may be nearly all of the norm, and that one rounded worst: 2^-8 and 2^-11.
TOLERANCE = {torch.bfloat16: 2.5e-3, torch.float16: 4e-4}
WORST = 1.6
MANY = 100
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
SIZES = pytest.mark.parametrize(
    "size", [(960, 576), (1000, 1000), (2048, 2048), (8, 64), (6144, 4096), (2056, 8200)], ids=str
)
ROWS = pytest.mark.parametrize("rows", [1, 17, 24, 32, 48, 64, 96, 100, 128, 200, 256, 300])
ALONE = [(128, 32), (128, 64), (128, 128), (256, 32), (256, 64), (256, 128)]
PAIRED = [(128, 32), (128, 64), (128, 128), (256, 32)]
PLANS = [GemmPlan(*tile, split) for tile in ALONE for split in (1, 2, 3, 4, 5, 6, 8)] + [
    GemmPlan(*tile, split, 2, early) for tile in PAIRED for split in (1, 2, 3, 4, 5, 6, 8) for early in (0, 1)
]


def normal(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") * scale).to(dtype)


def apart(rows: int, k: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows with something that is not a number between them."""
    whole = torch.full((rows, k + 24), float("nan"), device="cuda", dtype=dtype)
    whole[:, 8 : 8 + k] = normal(rows, k, dtype=dtype)
    return whole[:, 8 : 8 + k]


def poison(rows: int, n: int, dtype: torch.dtype) -> None:
    """What the allocator gives out next is not a number."""
    torch.full((rows, n), float("nan"), dtype=dtype, device="cuda")


def check(out: torch.Tensor, expected: torch.Tensor) -> None:
    assert out.shape == expected.shape
    error = ((out.double() - expected).norm() / expected.norm()).item()
    assert error < TOLERANCE[out.dtype] * (1 if out.numel() > MANY else WORST), error


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.double() @ weight.double().T


def activated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    gate, up = product(x, weight).chunk(2, dim=-1)
    return gate * gate.sigmoid() * up


@DTYPES
@ROWS
@SIZES
def test_linear_with_and_without_bias(size: tuple[int, int], rows: int, dtype: torch.dtype) -> None:
    n, k = size
    x, weight, bias = apart(rows, k, dtype), normal(n, k, dtype=dtype, scale=k**-0.5), normal(n, dtype=dtype)
    expected = product(x, weight)
    poison(rows, n, dtype)
    check(gemm.linear(x, weight, bias), expected + bias.double())
    poison(rows, n, dtype)
    check(gemm.linear(x, weight), expected)


@DTYPES
@ROWS
@SIZES
def test_the_activation_is_applied(size: tuple[int, int], rows: int, dtype: torch.dtype) -> None:
    n, k = size
    x, weight = apart(rows, k, dtype), normal(2 * n, k, dtype=dtype, scale=k**-0.5)
    poison(rows, n, dtype)
    check(gemm.linear_silu_mul(x, weight), activated(x, weight))


@DTYPES
@ROWS
@SIZES
def test_the_residual_is_added_in_place(size: tuple[int, int], rows: int, dtype: torch.dtype) -> None:
    n, k = size
    x, weight = apart(rows, k, dtype), normal(n, k, dtype=dtype, scale=k**-0.5)
    whole = normal(rows + 2, n + 6, dtype=dtype)
    before, residual = whole.clone(), whole[1:-1, 2 : 2 + n]
    expected = residual.double() + product(x, weight)
    gemm.linear_add(x, weight, residual)
    check(residual, expected)
    residual.copy_(before[1:-1, 2 : 2 + n])
    assert torch.equal(whole, before)


@pytest.mark.parametrize("chosen", PLANS, ids=lambda plan: "-".join(map(str, plan)))
def test_every_plan_gives_the_product_and_the_same_one_again(chosen: GemmPlan) -> None:
    n, k, dtype = 1000, 1544, torch.bfloat16
    weight = normal(2 * n, k, dtype=dtype, scale=k**-0.5)
    for rows in (chosen.tokens - 15, chosen.tokens, chosen.tokens + 9):
        x, residual = apart(rows, k, dtype), normal(rows, n, dtype=dtype)
        out = torch.full((rows, n), float("nan"), device="cuda", dtype=dtype)
        gemm._product(x, weight[:n], None, out, gemm.STORE, chosen)
        check(out, product(x, weight[:n]))
        again = gemm._product(x, weight[:n], None, torch.empty_like(out), gemm.STORE, chosen)
        assert torch.equal(out, again)
        check(gemm._product(x, weight, None, out, gemm.SILU_MUL, chosen), activated(x, weight))
        expected = residual.double() + product(x, weight[:n])
        check(gemm._product(x, weight[:n], None, residual, gemm.ADD, chosen), expected)


def test_many_tiles_pass_through_the_same_stages() -> None:
    x, weight = apart(64, 2048, torch.bfloat16), normal(70000, 2048, dtype=torch.bfloat16, scale=0.02)
    for height in (128, 256):
        out = torch.full((64, 70000), float("nan"), device="cuda", dtype=torch.bfloat16)
        gemm._product(x, weight, None, out, gemm.STORE, GemmPlan(height, 64, 1))
        for first in range(0, 70000, 10000):
            check(out[:, first : first + 10000], product(x, weight[first : first + 10000]))


def test_a_kernel_waits_for_what_the_one_before_it_wrote() -> None:
    x, weight = normal(64, 2048, dtype=torch.bfloat16), normal(2048, 2048, dtype=torch.bfloat16, scale=2048**-0.5)
    expected = x
    for _ in range(20):
        expected = torch.nn.functional.linear(expected, weight)
    out = x
    for _ in range(20):
        out = gemm.linear(out, weight)
    error = ((out.double() - expected.double()).norm() / expected.double().norm()).item()
    assert error < 2e-2, error


def test_operands_that_do_not_fit_are_named() -> None:
    x, weight = normal(20, 64, dtype=torch.bfloat16), normal(16, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="weight: 56 columns"):
        gemm.linear(x, weight[:, :56])
    with pytest.raises(ValueError, match="weight: 12 rows"):
        gemm.linear(x, weight[:12])
    with pytest.raises(ValueError, match="x: rows must begin"):
        gemm.linear(normal(20, 68, dtype=torch.bfloat16)[:, 4:], weight)
    with pytest.raises(ValueError, match="residual"):
        gemm.linear_add(x, weight, normal(20, 8, dtype=torch.bfloat16))
