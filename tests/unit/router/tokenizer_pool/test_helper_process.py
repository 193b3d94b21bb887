"""Whose fault it is that a helper process has not answered within the limit."""

import pytest

from octavo.router.tokenizer_pool.helper_process import Fault, ProcessUsage, fault_over_limit

LIMIT_S = 2.0


@pytest.mark.parametrize(
    ("cpu_s", "state", "fault"),
    [
        ((5.0, 6.9), "R", "slow"),  # it had the CPU: its input takes that long
        ((5.0, 6.0), "S", "slow"),
        ((5.0, 5.4), "R", None),  # a busy machine: it is given time
        ((5.0, 5.4, 5.9), "R", None),
        ((5.0, 5.4, 6.1), "R", "slow"),
        ((5.0, 5.05), "S", "outside"),  # frozen, or waiting for a disk
        ((5.0, 5.8, 5.85), "S", "outside"),
        ((5.0, 6.9), "T", "outside"),  # stopped
        ((5.0, 6.9), "t", "outside"),
    ],
)
def test_an_input_is_to_blame_once_its_helper_had_the_cpu(
    cpu_s: tuple[float, ...], state: str, fault: Fault | None
) -> None:
    assert fault_over_limit([ProcessUsage(state, used) for used in cpu_s], LIMIT_S) == fault


def test_where_nothing_tells_of_processes_the_input_is_to_blame() -> None:
    assert fault_over_limit([None, None], LIMIT_S) == "slow"
    assert fault_over_limit([ProcessUsage("R", 1.0), None], LIMIT_S) == "slow"
