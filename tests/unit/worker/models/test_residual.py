"""What layers add to the residual stream is there when it is read, however the ranks add up, and is added up once."""

from collections.abc import Callable

import pytest
import torch

from octavo.kernels import reference
from octavo.kernels.backend import choose
from octavo.worker.distributed.collective import Collective, Norming, Overlapping
from octavo.worker.models.linear_methods.linear_method import Linear
from octavo.worker.models.linear_methods.unquantized import UnquantizedLinear
from octavo.worker.models.overlap import Halves
from octavo.worker.models.residual import Residual, Rows, SummedRows

EPS = 1e-5
KERNELS = choose("reference")


class Pair:
    """A rank of two, of which the other has three times its part. calls: which sums were made."""

    rank, size, transport = 0, 2, 0

    def __init__(self) -> None:
        self.calls: list[str] = []

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("layers add to a stream")

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        self.calls.append("sum")
        residual += 4 * x
        x.fill_(torch.nan)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("layers gather nothing")


class NormingPair(Pair):
    def __init__(self, declines: bool = False) -> None:
        super().__init__()
        self._declines = declines

    def add_sum_norm_(
        self, residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor | None:
        self.add_sum_(residual, x)
        self.calls[-1] = "sum and norm"
        return None if self._declines else reference.rms_norm(residual, weight, eps)


class OverlappingPair(Pair):
    def overlaps(self, x: torch.Tensor) -> bool:
        return True

    def begin_sum(self, x: torch.Tensor) -> Callable[[], None]:
        """The first rank's rows have what was there before."""
        self.calls.append("begin")
        part = x.clone()
        x.fill_(torch.nan)

        def end() -> None:
            self.calls.append("end")
            x.copy_(part)

        return end


def matrix(generator: torch.Generator, outputs: int, inputs: int) -> Linear:
    return UnquantizedLinear(torch.randn(outputs, inputs, generator=generator) / 8, None, KERNELS)


def layers_of(stream: Residual, scale: float) -> list[torch.Tensor]:
    """Two layers; what they read. scale: of what is added, so that a rank alone adds what two do."""
    generator = torch.Generator().manual_seed(2)
    read = []
    for _ in range(2):
        norm, wide, back = torch.rand(8, generator=generator), matrix(generator, 12, 8), matrix(generator, 8, 12)
        gate_up, down = matrix(generator, 12, 8), matrix(generator, 8, 6)
        mixed = stream.norm_linear(norm, wide)
        read.append(mixed)
        stream.add(mixed * scale, back)

        def mlp(rows: Rows, norm: torch.Tensor = norm, gate_up: Linear = gate_up, down: Linear = down) -> None:
            rows.add(rows.norm_linear_silu_mul(norm, gate_up) * scale, down)

        stream.each(mlp)
    return read


def stream(collective: Collective) -> SummedRows:
    return SummedRows(start(), EPS, collective, collective if isinstance(collective, Norming) else None)


def start() -> torch.Tensor:
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def alone() -> tuple[Rows, list[torch.Tensor]]:
    rows = Rows(start(), EPS)
    return rows, layers_of(rows, 4)


@pytest.mark.parametrize(
    ("collective", "sum_of"),
    [(Pair(), "sum"), (NormingPair(), "sum and norm"), (NormingPair(declines=True), "sum and norm")],
    ids=["plain", "norming", "norming that declines"],
)
def test_ranks_sum_once_for_each_addition(
    alone: tuple[Rows, list[torch.Tensor]], collective: Pair, sum_of: str
) -> None:
    rows = stream(collective)
    read = layers_of(rows, 1)
    assert collective.calls == [sum_of] * 3, "the last addition is read by no norm of these layers"
    torch.testing.assert_close(rows.whole(), alone[0].whole())
    torch.testing.assert_close(read, alone[1])
    assert collective.calls == [sum_of] * 3 + ["sum"]
    rows.whole()
    assert len(collective.calls) == 4


def test_a_half_is_computed_with_while_the_other_is_summed(alone: tuple[Rows, list[torch.Tensor]]) -> None:
    collective = OverlappingPair()
    assert isinstance(collective, Overlapping)
    halves = Halves(start(), EPS, collective, True, KERNELS.rms_norm)
    read = layers_of(halves, 4)  # the first rank alone: its part is the sum
    torch.testing.assert_close(halves.whole(), alone[0].whole())
    torch.testing.assert_close(read, alone[1])
    layer = ["begin", "begin", *["end", "begin"] * 2]
    assert collective.calls == [*layer, "end", "end", *layer, "end", "end"]


class WholeDevice(UnquantizedLinear):
    """Its product with a norm takes the whole device."""

    def norm_linear_silu_mul(self, x: torch.Tensor, norm: torch.Tensor, eps: float) -> torch.Tensor:
        raise AssertionError("the sum of the other half would wait")


def test_a_half_leaves_room_for_the_sum_of_the_other() -> None:
    halves, alone = Halves(start(), EPS, OverlappingPair(), True, KERNELS.rms_norm), Rows(start(), EPS)
    weight, norm = torch.randn(12, 8, generator=torch.Generator().manual_seed(3)), torch.full((8,), 0.5)
    read: list[torch.Tensor] = []
    halves.each(lambda rows: read.append(rows.norm_linear_silu_mul(norm, WholeDevice(weight, None, KERNELS))))
    expected = alone.norm_linear_silu_mul(norm, UnquantizedLinear(weight, None, KERNELS))
    torch.testing.assert_close(torch.cat(read), expected)
