"""How a supervisor goes from one incarnation to the next."""

import asyncio
from typing import Any

import pytest

from octavo.proto.v1 import group_pb2
from octavo.shared.failure_reasons import FailureReason
from octavo.worker.config import Config
from octavo.worker.lifecycle.backoff import FIRST_S, GOOD_S
from octavo.worker.membership.status import failure
from octavo.worker.supervisor import supervisor as module
from octavo.worker.supervisor.supervisor import Supervisor

ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")


class Failing(Supervisor):
    """Its incarnations serve for these seconds, then fail for this reason; after the last it is asked to stop."""

    def __init__(self, served_s: list[float], reason: FailureReason, **config: Any) -> None:
        super().__init__(Config(model="m", served_name="m", **ADDRESSES, **config))
        self.served_s, self.reason = served_s, reason

    async def _one_incarnation(self, local: str) -> tuple[float, group_pb2.Failure | None]:
        served_s = self.served_s.pop(0)
        if not self.served_s:
            self._stopping.set()
        return served_s, failure("local", 0, self.reason, 1, "it ended")


async def waits(monkeypatch: pytest.MonkeyPatch, one: Failing) -> list[float]:
    """Seconds between its incarnations."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(module.asyncio, "sleep", noted)
    assert await one._run_incarnations("unix:/tmp/x") == 1
    return slept


async def test_incarnations_that_fail_at_once_begin_ever_later_until_one_has_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Failing([0.0, 0.0, 1.0, 0.0, GOOD_S, 0.0, 0.0], FailureReason.RANK_EXITED)
    assert await waits(monkeypatch, one) == [0.2, 0.4, 0.8, 1.6, 0.2, 0.4]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (FailureReason.RANK_EXITED, [FIRST_S] * 5),
        (FailureReason.JOIN_REFUSED, [0.2, 0.4, 0.8, 1.6, 2.0]),
    ],
)
async def test_pods_that_do_not_lead_are_there_when_the_leader_begins(
    monkeypatch: pytest.MonkeyPatch, reason: FailureReason, expected: list[float]
) -> None:
    one = Failing([0.0] * 6, reason, tensor=2, ranks_per_pod=1, pod_index=1, peers=("unix:/tmp/a", "unix:/tmp/b"))
    assert await waits(monkeypatch, one) == expected
