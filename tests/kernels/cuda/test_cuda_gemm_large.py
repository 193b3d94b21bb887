"""silu(gate) * up of a large batch agrees with float64, to the rounding of its result, for any size and layout."""

import pytest
import torch

from octavo.kernels.cuda.elementwise import rms_norm
from octavo.kernels.cuda.gemm import gemm_large

pytestmark = pytest.mark.gpu

# Norm of the difference over the norm of the result.
TOLERANCE = {torch.bfloat16: 2.5e-3, torch.float16: 4e-4}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
SIZES = pytest.mark.parametrize("size", [(960, 576), (1000, 1000), (2048, 2048), (8, 64), (264, 8200)], ids=str)
ROWS = pytest.mark.parametrize("rows", [1, 63, 128, 200, 256, 257, 1000, 2111, 8192])


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
    assert error < TOLERANCE[out.dtype] * (1 if out.numel() > 100 else 1.6), error


def activated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    gate, up = (x.double() @ weight.double().T).chunk(2, dim=-1)
    return gate * gate.sigmoid() * up


@DTYPES
@ROWS
@SIZES
def test_the_activation_of_a_product(size: tuple[int, int], rows: int, dtype: torch.dtype) -> None:
    n, k = size
    x, weight = apart(rows, k, dtype), normal(2 * n, k, dtype=dtype, scale=k**-0.5)
    poison(rows, n, dtype)
    check(gemm_large.linear_silu_mul(x, weight), activated(x, weight))


def test_many_tiles_pass_through_the_same_stages_and_a_rows_bits_are_its_own() -> None:
    x = normal(4096, 4096, dtype=torch.bfloat16)
    weight = normal(28672, 4096, dtype=torch.bfloat16, scale=4096**-0.5)
    out = gemm_large.linear_silu_mul(x, weight)
    for begin in range(0, 4096, 1024):
        check(out[begin : begin + 1024], activated(x[begin : begin + 1024], weight))
    assert torch.equal(gemm_large.linear_silu_mul(x, weight), out)
    assert torch.equal(gemm_large.linear_silu_mul(x[:300], weight), out[:300])


def test_gates_far_from_zero_are_neither_lost_nor_not_a_number() -> None:
    x = torch.eye(64, device="cuda", dtype=torch.bfloat16)
    gate = torch.linspace(-3e4, 3e4, 64 * 64, device="cuda").view(64, 64).T.bfloat16()
    weight = torch.cat([gate, torch.ones_like(gate)])
    wanted = torch.nn.functional.silu(gate.T.double())
    assert torch.allclose(gemm_large.linear_silu_mul(x, weight).double(), wanted, rtol=1e-2, atol=1e-30)


def test_a_kernel_waits_for_what_the_one_before_it_wrote() -> None:
    ones = torch.ones(2048, device="cuda", dtype=torch.bfloat16)
    weight = normal(4096, 2048, dtype=torch.bfloat16, scale=2048**-0.5)
    inputs, outs = [normal(512, 2048, dtype=torch.bfloat16)], []
    for _ in range(10):
        outs.append(gemm_large.linear_silu_mul(inputs[-1], weight))
        inputs.append(rms_norm(outs[-1], ones, 1e-6))
    for x, out in zip(inputs, outs, strict=False):
        torch.cuda.synchronize()
        assert torch.equal(gemm_large.linear_silu_mul(x, weight), out)


def test_operands_that_do_not_fit_are_named() -> None:
    x, weight = normal(300, 64, dtype=torch.bfloat16), normal(32, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="gate_up"):
        gemm_large.linear_silu_mul(x, weight[:, :56])
    with pytest.raises(ValueError, match="gate_up: 24 rows"):
        gemm_large.linear_silu_mul(x, weight[:24])
    with pytest.raises(ValueError, match="x: rows of 64"):
        gemm_large.linear_silu_mul(normal(300, 68, dtype=torch.bfloat16)[:, 4:], weight)
