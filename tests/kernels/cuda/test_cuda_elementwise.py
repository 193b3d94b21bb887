"""RMSNorm, silu(gate) * up and embeddings agree with float64 to the rounding of their results, also for rows apart."""

import pytest
import torch

from octavo.kernels import reference
from octavo.kernels.cuda.elementwise import embed, rms_norm, silu_mul

pytestmark = pytest.mark.gpu

EPS = 1e-5
# Half a unit of the last place; float32: a few units, of sums and of the fast exp.
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 1e-6}
DTYPES = pytest.mark.parametrize("dtype", ROUNDING, ids=str)
ROWS = pytest.mark.parametrize("rows", [1, 15, 16, 17, 265, 4097])
WIDTHS = pytest.mark.parametrize("width", [8, 64, 576, 2048, 4096, 8200, 16384])


def apart(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows with something else between them."""
    return (torch.randn(rows, width + 24, device="cuda") * 3).to(dtype)[:, 8 : 8 + width]


def poison(rows: int, width: int, dtype: torch.dtype) -> None:
    """What the allocator gives out next is not a number."""
    torch.full((rows, width), float("nan"), dtype=dtype, device="cuda")


def check(out: torch.Tensor, exact: torch.Tensor, roundings: float) -> None:
    assert out.is_contiguous()
    tolerance = 1.05 * roundings * ROUNDING[out.dtype]
    torch.testing.assert_close(out.double(), exact, rtol=tolerance, atol=1e-6 if out.dtype != torch.bfloat16 else 1e-30)


@DTYPES
@ROWS
@WIDTHS
def test_rms_norm(rows: int, width: int, dtype: torch.dtype) -> None:
    x, weight = apart(rows, width, dtype), apart(1, width, dtype)[0]
    wide = x.double()
    exact = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()
    poison(rows, width, dtype)
    out = rms_norm(x, weight, EPS)
    check(out, exact, 2)  # rounded before the weight and after
    if dtype != torch.float32:  # there, sums in another order show
        assert (out == reference.rms_norm(x, weight, EPS)).float().mean() > 0.99


@DTYPES
@ROWS
@WIDTHS
def test_silu_mul(rows: int, width: int, dtype: torch.dtype) -> None:
    x = apart(rows, 2 * width, dtype)
    x[0, :8] = torch.tensor([-100.0, 100.0, 0.0, -88.5, -20.0, 1e3, -1e3, 1.0], device="cuda")
    poison(rows, width, dtype)
    wide = x.double()
    exact = torch.sigmoid(wide[:, :width]) * wide[:, :width] * wide[:, width:]
    check(silu_mul(x), exact, 1 if dtype != torch.float32 else 10)


@DTYPES
@ROWS
@WIDTHS
def test_embed_copies_rows(rows: int, width: int, dtype: torch.dtype) -> None:
    table = torch.randn(37, width, device="cuda").to(dtype)
    ids = torch.randint(0, 37, (rows,), device="cuda", dtype=torch.int32)
    poison(rows, width, dtype)
    assert torch.equal(embed(ids, table), table[ids])


def test_an_id_outside_the_table_gives_zeros() -> None:
    ids = torch.tensor([-1, 3, 2**31 - 1, 2], device="cuda", dtype=torch.int32)
    table = torch.ones(3, 64, device="cuda")
    poison(4, 64, torch.float32)
    assert embed(ids, table).sum(1).tolist() == [0, 0, 0, 64]
    ids = torch.tensor([6, 3, 5, 8], device="cuda", dtype=torch.int32)
    assert embed(ids, table, first=4).sum(1).tolist() == [64, 0, 64, 0]


def test_what_cannot_be_read_in_vectors_is_refused_by_name() -> None:
    x = torch.zeros(4, 72, device="cuda", dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="x: rows of 60"):
        rms_norm(x[:, :60], x[0, :60], EPS)
    with pytest.raises(ValueError, match="x: rows of 64"):
        rms_norm(x[:, 1:65], x[0, :64], EPS)
    with pytest.raises(ValueError, match="gate_up: rows of 36"):
        silu_mul(x)
    with pytest.raises(ValueError, match="ids"):
        embed(torch.zeros(2, device="cuda", dtype=torch.int64), x)


def test_no_rows_are_fine() -> None:
    x = torch.zeros(0, 64, device="cuda")
    assert rms_norm(x, torch.ones(64, device="cuda"), EPS).shape == (0, 64)
    assert silu_mul(x).shape == (0, 32)
