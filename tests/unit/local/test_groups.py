"""A group of several pods is, on one machine, as many worker processes that know each other's sockets."""

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import UsageError
from octavo.local import gpus as gpus_of
from octavo.local import main
from octavo.local.commands import Sockets, router_argv, worker_argv
from octavo.local.flags import parse_args
from octavo.worker.devices.memory import threads
from octavo.worker.main import parse

ON_CPU = ["--device", "cpu"]
SHAPE = ("--tensor", "--pipeline", "--ranks-per-pod", "--pod-index", "--peers", "--pod-name")


def argv(folder: Path, pod: int, *flags: str, group: int = 0) -> list[str]:
    given = worker_argv(parse_args([*ON_CPU, *flags]), Sockets(folder, group, pod))
    return [argument for argument in given if argument.startswith(SHAPE)]


def peers(folder: Path, pods: int, group: int = 0) -> str:
    return "--peers=" + ",".join(f"unix:{folder}/{group}-{pod}-group.sock" for pod in range(pods))


def test_a_group_of_one_rank_gets_no_flags_of_shapes(tmp_path: Path) -> None:
    assert argv(tmp_path, 0, group=3) == ["--pod-name=group-3"]


def test_ranks_of_one_pod_need_no_peers(tmp_path: Path) -> None:
    assert argv(tmp_path, 0, "--tensor", "3") == ["--pod-name=group-0", "--tensor=3"]


def test_each_pod_knows_its_place_and_where_all_are(tmp_path: Path) -> None:
    shape = ["--tensor", "3", "--pipeline", "2", "--ranks-per-pod", "1"]
    own = ["--pod-name=group-1-4", "--pod-index=4", peers(tmp_path, 6, group=1)]
    assert argv(tmp_path, 4, *shape, group=1) == [*own, "--tensor=3", "--pipeline=2", "--ranks-per-pod=1"]


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        ([], None),  # one pod divides what it has itself
        (["--tensor", "2"], None),
        (["--tensor", "2", "--pipeline", "2"], 4),
        (["--tensor", "2", "--pipeline", "2", "--ranks-per-pod", "1", "--replicas", "2"], 8),
        (["--replicas", "2"], 2),
    ],
)
def test_ranks_of_several_pods_share_the_threads_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], ranks: int | None
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(16))
    expected = None if ranks is None else threads(None, ranks=ranks)  # 16 / ranks, unless a quota allows less
    argv = worker_argv(parse_args([*ON_CPU, *given]), Sockets(tmp_path, 0, 0))
    assert parse(argv[1:]).threads == expected


def test_pods_listen_beside_each_other_and_the_router_dials_the_first_of_each_group(tmp_path: Path) -> None:
    settings = parse_args([*ON_CPU, "--pipeline", "2", "--replicas", "2"])
    pods = [Sockets(tmp_path, group, pod) for group in (0, 1) for pod in (0, 1)]
    listeners = [flag.partition("=")[2] for sockets in pods for flag in sockets.flags()]
    assert len(set(listeners)) == 20
    dialled = [flag for flag in router_argv(settings, 8000, None, pods[::2]) if flag.startswith("--group=")]
    assert dialled == [f"--group=unix:{tmp_path}/{group}-0-serve.sock" for group in (0, 1)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--tensor", "0"], r"^spec\.parallelism\.tensor \(--tensor\): must be 1 to"),
        (["--pipeline", "99"], r"^spec\.parallelism\.pipeline \(--pipeline\): must be 1 to"),
        (["--tensor", "9", "--pipeline", "8"], r"^spec\.parallelism \(--tensor, --pipeline\): .*at most 64 ranks"),
        (["--tensor", "3", "--ranks-per-pod", "2"], r"^spec\.accelerator\.perPod \(--ranks-per-pod\): .*must divide"),
        (
            ["--device", "cuda", "--tensor", "2", "--ranks-per-pod", "1"],
            r"^spec\.accelerator\.perPod \(--ranks-per-pod\): .*one pod",
        ),
    ],
)
def test_a_shape_that_cannot_be_is_refused_by_its_flag(given: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        parse_args([*ON_CPU, *given])


def test_a_refused_shape_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ON_CPU, "--tensor", "0"]) == 2
    assert "--tensor" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "gpus", "ours", "shown"),
    [
        (["--tensor", "2"], 1, {}, [{}]),
        ([], 2, {}, ["0"]),
        (["--tensor", "2"], 4, {}, ["0,1"]),
        (["--pipeline", "2"], 2, {}, ["0", "1"]),
        (["--tensor", "2", "--pipeline", "2"], 4, {"CUDA_VISIBLE_DEVICES": "7, 5,3,1"}, ["7,5", "3,1"]),
        (["--replicas", "3"], 2, {}, ["0", "1", "0"]),
        (["--replicas", "2", "--tensor", "2"], 3, {}, ["0,1", "2,0"]),
    ],
)
def test_each_pod_sees_gpus_of_its_own_while_there_are_some(
    tmp_path: Path, flags: list[str], gpus: int, ours: dict[str, str], shown: list[Any]
) -> None:
    spec = parse_args(["--device", "cuda", *flags]).service.spec
    pods = [Sockets(tmp_path, group, pod) for group in range(spec.replicas) for pod in range(spec.pods)]
    expected = [one if isinstance(one, dict) else {"CUDA_VISIBLE_DEVICES": one} for one in shown]
    assert [gpus_of.shown(spec, sockets, gpus, ours) for sockets in pods] == expected
