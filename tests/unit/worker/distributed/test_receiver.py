"""A peer that opens a stream to a stage and says nothing is sent away, and keeps no other peer out."""

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from octavo.worker import channel
from octavo.worker.addresses import rank_address
from octavo.worker.config import Config
from octavo.worker.distributed.pipeline import wire
from octavo.worker.distributed.pipeline.bounded_queue import BoundedQueue
from octavo.worker.distributed.pipeline.receiver import ADMITTED, LinkReceiver
from octavo.worker.distributed.pipeline.wire import Received
from octavo.worker.topology import Layout, RankPosition

SILENT = 12  # more than an inlet has threads


def test_silent_streams_are_ended_and_the_rank_before_is_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "FIRST_S", 0.3)
    group, lost = f"unix:{tmp_path}/pod", list[str]()
    config = Config("m", "m", f"unix:{tmp_path}/serve", group, *[f"unix:{tmp_path}/other"] * 3)
    queue: BoundedQueue[Received] = BoundedQueue(4)
    link_receiver = LinkReceiver(config, RankPosition(Layout(1, 1, 1)), "now", queue, lost.append)
    over = threading.Event()

    def say(*words: bytes) -> Iterator[bytes]:
        yield from words
        over.wait(30)

    with grpc.insecure_channel(rank_address(group, 0)) as opened:
        call = opened.stream_unary(f"/{wire.SERVICE}/Activations")
        silent = [call.future(say(), wait_for_ready=True) for _ in range(SILENT)]
        right = call.future(say(wire.encode_introduction("now", "", 0)), wait_for_ready=True)
        queue.opened()
        assert ADMITTED in right.initial_metadata()
        assert {one.exception(10).code() for one in silent} == {grpc.StatusCode.CANCELLED}
        assert not right.done() and not lost
        over.set()
        right.result(10)
    assert link_receiver.late == 0
