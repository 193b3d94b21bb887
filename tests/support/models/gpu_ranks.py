"""A function on several GPUs at once: a process each, which sees one of them and meets the others by gloo."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from octavo.worker.devices import gpu
from octavo.worker.distributed.gloo import Gloo

_START = multiprocessing.get_context("spawn")


def on_gpus(count: int, work: Callable[..., Any], *arguments: Any, timeout_s: float = 60.0) -> list[Any]:
    """What work(gloo, *arguments) returns on each; what one raises is raised. work: a function of a module."""
    with tempfile.TemporaryDirectory(prefix="octavo-gpus-") as folder:
        pipes, processes = [], []
        for rank in range(count):
            near, far = _START.Pipe()
            child = _START.Process(target=_run, args=(far, rank, count, Path(folder) / "meet", work, arguments))
            child.start()
            far.close()
            pipes.append(near)
            processes.append(child)
        try:
            return [_answer(near, rank, timeout_s) for rank, near in enumerate(pipes)]
        finally:
            for child in processes:
                child.kill()
                child.join()


def _answer(near: Connection, rank: int, timeout_s: float) -> Any:
    if not near.poll(timeout_s):
        raise TimeoutError(f"rank {rank} does not answer within {timeout_s} s")
    answer = near.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _run(
    far: Connection, rank: int, count: int, meeting: Path, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    try:
        gpu.take(rank)
        assert not torch.cuda.is_initialized(), f"CUDA has begun before {os.environ[gpu.VISIBLE]} was chosen"
        far.send(work(Gloo(rank, count, f"file://{meeting}", "test"), *arguments))
    except BaseException as error:
        far.send(error if isinstance(error, Exception) else RuntimeError(repr(error)))
    far.recv_bytes()  # until the test has what it wants: peers still read this one's memory
