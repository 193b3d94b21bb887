"""Each reason of a failure has advice and a place in the operations page; the types admit no other."""

from pathlib import Path

import pytest

from octavo.shared.failure_reasons import FailureReason, exited, failed, stuck

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.parametrize("reason", FailureReason)
def test_every_reason_has_advice_and_is_in_the_operations_page(reason: FailureReason) -> None:
    assert reason.advice
    assert f"`{reason}`" in OPERATIONS.read_text(), f"docs/operations.md does not name {reason}"


def test_every_process_of_a_worker_has_its_reasons() -> None:
    for process in ("serve", "core", "rank"):
        named = [exited(process), failed(process), stuck(process)]
        assert named == [f"{process.capitalize()}{ending}" for ending in ("Exited", "Failed", "Stuck")]


def test_a_reason_of_a_newer_component_is_none_of_ours() -> None:
    assert FailureReason.known("InventedLater") is None
    assert FailureReason.parse("InventedLater") is FailureReason.UNKNOWN
    assert FailureReason.parse("KernelsMissing") is FailureReason.KERNELS_MISSING
