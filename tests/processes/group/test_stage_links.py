"""Links between the stages of a pipeline: what is sent arrives or its loss is known, and strangers are kept out."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
import torch
from support.patience import PATIENCE_S
from support.processes.ports import free_port
from support.processes.tcp_proxy import TcpProxy
from support.worker.authority import UID, Authority
from support.worker.stage_rank import StageRank

from octavo.worker.addresses import rank_address
from octavo.worker.distributed.links import Sampled
from octavo.worker.distributed.pipeline import wire
from octavo.worker.errors import PeerLost

SHAPE = (16, 576)


@pytest.fixture
def end() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


class Ring:
    """Ranks that dial each other straight, but for the links that a proxy stands in: {from: proxy address}."""

    def __init__(self, end: ExitStack, groups: list[str], **config: object) -> None:
        self._end, self._groups, self._config = end, groups, config
        self.ranks: list[StageRank] = []

    def start(self, through: dict[int, str] | None = None) -> "Ring":
        for rank in range(len(self._groups)):
            self.ranks.append(self.rank(rank, through=through))
        return self

    def rank(self, rank: int, incarnation: str = "now", through: dict[int, str] | None = None) -> StageRank:
        peers = list(self._groups)
        if through and rank in through:
            peers[(rank + 1) % len(peers)] = through[rank]
        one = StageRank(rank, peers, self._groups[rank], incarnation, **self._config)
        self._end.callback(one.close)
        return one


def unix_groups(folder: Path, count: int) -> list[str]:
    return [f"unix:{folder}/pod{pod}" for pod in range(count)]


def tcp_groups(count: int) -> list[str]:
    """Whose ranks' ports were free a moment ago."""
    return [f"127.0.0.1:{free_port() - 100}" for _ in range(count)]


def secured(authority: Authority, **more: str) -> dict[str, str]:
    return {"tls_dir": str(authority.issue("worker")), "service_uid": UID, **more}


def go_round(ring: Ring, steps: range) -> None:
    """Hidden states through all stages, and the sampled ids back to the first."""
    first, *middle, last = ring.ranks
    for rank in middle:
        rank.ask("receive", steps, SHAPE, "bfloat16")
    last.ask("receive", steps, SHAPE, "bfloat16" if not middle else "float32")
    first.call("send", steps, SHAPE, "bfloat16")
    for rank in middle:
        assert rank.answer()
        rank.call("send", steps, SHAPE, "float32")
    assert last.answer()
    last.call("sample", steps)
    assert first.call("hear", len(steps)) == [Sampled(step, (step, 2**32 - 1)) for step in steps]


@pytest.mark.parametrize("stages", [2, 3])
def test_ranks_in_a_ring_hear_each_other_over_unix_sockets(tmp_path: Path, end: ExitStack, stages: int) -> None:
    ring = Ring(end, unix_groups(tmp_path, stages)).start()
    go_round(ring, range(1, 4))
    go_round(ring, range(5, 7))


@pytest.mark.parametrize("stages", [2, 3])
def test_ranks_in_a_ring_hear_each_other_over_tls(end: ExitStack, authority: Authority, stages: int) -> None:
    go_round(Ring(end, tcp_groups(stages), **secured(authority)).start(), range(1, 4))


def test_a_rank_waits_for_a_peer_that_loads_for_longer(tmp_path: Path, end: ExitStack) -> None:
    ring = Ring(end, unix_groups(tmp_path, 2))
    early = ring.rank(0).ask("connect")
    with pytest.raises(AssertionError, match="no answer"):
        early.answer(3)
    ring.rank(1).call("connect")
    early.answer()


def test_a_large_tensor_passes(tmp_path: Path, end: ExitStack) -> None:
    first, last = Ring(end, unix_groups(tmp_path, 2)).start().ranks
    last.ask("receive", range(1, 2), (4096, 8192), "bfloat16")
    first.call("send", range(1, 2), (4096, 8192), "bfloat16")
    assert last.answer()


def test_another_step_than_the_expected_one_is_an_error(tmp_path: Path, end: ExitStack) -> None:
    first, last = Ring(end, unix_groups(tmp_path, 2)).start().ranks
    first.call("send", range(3, 4), SHAPE, "float32")
    with pytest.raises(ValueError, match="step 3 where step 2 is expected"):
        last.call("receive", range(2, 3), SHAPE, "float32")


def test_a_slow_link_changes_nothing_but_time(tmp_path: Path, end: ExitStack) -> None:
    groups, far = unix_groups(tmp_path, 2), f"unix:{tmp_path}/proxy"
    end.enter_context(TcpProxy(rank_address(far, 0), rank_address(groups[1], 0), delay_s=0.5))
    ring = Ring(end, groups).start({0: far})
    began = time.monotonic()
    go_round(ring, range(1, 4))
    assert time.monotonic() - began > 0.5


@pytest.mark.parametrize("tls", [False, True])
def test_a_link_that_is_cut_is_lost_on_both_sides(
    tmp_path: Path, end: ExitStack, authority: Authority, tls: bool
) -> None:
    groups = tcp_groups(3) if tls else unix_groups(tmp_path, 3)
    far = groups.pop()
    proxy = end.enter_context(TcpProxy(rank_address(far, 0), rank_address(groups[1], 0)))
    ring = Ring(end, groups, **(secured(authority) if tls else {})).start({0: far})
    go_round(ring, range(1, 2))
    first, last = ring.ranks[0].ask("hear", 1), ring.ranks[1].ask("receive", range(2, 3), SHAPE, "float32")
    proxy.cut()
    for rank in (first, last):
        with pytest.raises(PeerLost):
            rank.answer(2)
    with pytest.raises(PeerLost):
        first.call("send", range(3, 4), SHAPE, "float32")


def test_a_rank_that_is_killed_is_lost_to_its_neighbours(tmp_path: Path, end: ExitStack) -> None:
    ring = Ring(end, unix_groups(tmp_path, 3)).start()
    go_round(ring, range(1, 2))
    first, middle, last = ring.ranks
    waiting = [first.ask("hear", 1), last.ask("receive", range(2, 3), SHAPE, "float32")]
    middle.process.kill()
    for rank in waiting:
        with pytest.raises(PeerLost):
            rank.answer(2)


def test_a_link_without_a_word_only_makes_wait(tmp_path: Path, end: ExitStack) -> None:
    groups, far = unix_groups(tmp_path, 2), f"unix:{tmp_path}/proxy"
    proxy = end.enter_context(TcpProxy(rank_address(far, 0), rank_address(groups[1], 0)))
    ring = Ring(end, groups).start({0: far})
    go_round(ring, range(1, 2))
    first, last = ring.ranks
    proxy.black_hole()
    last.ask("receive", range(2, 3), SHAPE, "float32")
    first.call("send", range(2, 3), SHAPE, "float32")
    with pytest.raises(AssertionError, match="no answer"):
        last.answer(1)
    proxy.heal()
    assert last.answer()


def test_a_rank_of_an_earlier_incarnation_is_refused_and_counted(tmp_path: Path, end: ExitStack) -> None:
    ring = Ring(end, unix_groups(tmp_path, 2))
    last = ring.rank(1)
    assert last.call("late") == 0
    old = ring.rank(0, "before").ask("connect")
    until(lambda: last.call("late") > 0)
    old.close()
    ring.ranks = [ring.rank(0), last]
    go_round(ring, range(1, 3))


def test_a_message_of_an_earlier_incarnation_ends_the_stream_and_is_counted(tmp_path: Path, end: ExitStack) -> None:
    last = Ring(end, unix_groups(tmp_path, 2)).rank(1)
    stale = wire.encode_hidden("before", 1, torch.ones(2, 2))
    code, _ = spoken(end, f"unix:{tmp_path}/pod1.0", introduction(), stale)
    assert code == grpc.StatusCode.FAILED_PRECONDITION and last.call("late") == 1
    with pytest.raises(PeerLost, match="'before'"):
        last.call("receive", range(1, 2), SHAPE, "float32")


HIDDEN = wire.encode_hidden("now", 1, torch.ones(2, 2))
NONSENSE = {
    "no introduction": ([HIDDEN], grpc.StatusCode.INVALID_ARGUMENT, "introduction"),
    "another rank": ([wire.encode_introduction("now", "", 1)], grpc.StatusCode.PERMISSION_DENIED, "rank 1 .* rank 0"),
    "another service": ([wire.encode_introduction("now", "x", 0)], grpc.StatusCode.PERMISSION_DENIED, "service 'x'"),
    "no protobuf": ([b"\xff\xff\xff"], grpc.StatusCode.INVALID_ARGUMENT, ""),
    "nothing": ([b""], grpc.StatusCode.FAILED_PRECONDITION, "incarnation"),
    "a step twice": (
        [wire.encode_introduction("now", "", 0), HIDDEN, HIDDEN], grpc.StatusCode.INVALID_ARGUMENT, "step 1 .* rise"
    ),
    "ids": (
        [wire.encode_introduction("now", "", 0), wire.encode_sampled("now", Sampled(1, (1,)))],
        grpc.StatusCode.INVALID_ARGUMENT, "sampled came where hidden",
    ),
    "half a tensor": (
        [wire.encode_introduction("now", "", 0), HIDDEN[:-8]], grpc.StatusCode.INVALID_ARGUMENT, "ends within"
    ),
}  # fmt: skip


def test_nonsense_is_refused_by_name(tmp_path: Path, end: ExitStack) -> None:
    for number, (messages, code, said) in enumerate(NONSENSE.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        Ring(end, unix_groups(folder, 2)).rank(1).call("late")
        got, details = spoken(end, f"unix:{folder}/pod1.0", *messages)
        assert got == code
        assert re.search(said, details)


def test_a_second_stream_of_the_same_rank_is_refused(tmp_path: Path, end: ExitStack) -> None:
    ring = Ring(end, unix_groups(tmp_path, 2)).start()
    go_round(ring, range(1, 2))
    assert spoken(end, f"unix:{tmp_path}/pod1.0", introduction())[0] == grpc.StatusCode.ALREADY_EXISTS
    go_round(ring, range(2, 3))


async def test_a_certificate_of_another_role_opens_no_link(end: ExitStack, authority: Authority) -> None:
    groups = tcp_groups(2)
    ring = Ring(end, groups, **secured(authority)).start()
    go_round(ring, range(1, 2))
    for role in ("router", "operator"):
        async with authority.dial(role, rank_address(groups[1], 0)) as channel:
            call = channel.stream_unary(f"/{wire.SERVICE}/Activations")(iter([wire.encode_introduction("now", UID, 0)]))
            with pytest.raises(grpc.aio.AioRpcError, match=r"worker\.1234\.octavo"):
                await call
    go_round(ring, range(2, 3))


def introduction() -> bytes:
    return wire.encode_introduction("now", "", 0)


def spoken(end: ExitStack, address: str, *messages: bytes) -> tuple[grpc.StatusCode, str]:
    """How a stream of these messages ends."""
    channel = end.enter_context(grpc.insecure_channel(address))
    call = channel.stream_unary(f"/{wire.SERVICE}/Activations").future(
        iter(messages), wait_for_ready=True, timeout=PATIENCE_S
    )
    call.exception()
    return call.code(), call.details()


def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.05)
