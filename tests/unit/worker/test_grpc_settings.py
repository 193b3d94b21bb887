"""How gRPC is set up in the process that serves: from outside, as it reads its environment when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.worker import channel
from octavo.worker.children import Children
from octavo.worker.config import Config
from octavo.worker.cradle import Cradle
from octavo.worker.wiring import Wiring, create_shared

LISTENS = """
import asyncio, sys
import grpc.aio
async def main():
    server = grpc.aio.server()
    server.add_insecure_port(sys.argv[1])
    await server.start()
    async with grpc.aio.insecure_channel(sys.argv[1]) as opened:
        await asyncio.wait_for(opened.channel_ready(), 60)
    await server.stop(0)
asyncio.run(main())
"""


def test_the_installed_grpc_knows_what_it_is_told(tmp_path: Path) -> None:
    """It tells of names that it does not know, and serves on: the leader would cost more, and nobody would see why."""
    command = [sys.executable, "-c", LISTENS, f"unix:{tmp_path}/s"]
    ran = subprocess.run(command, env=channel.environment(os.environ), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "experiment" not in ran.stderr.lower()
    wrong = channel.environment({**os.environ, "GRPC_EXPERIMENTS": "-no_such_thing"})
    ran = subprocess.run(command, env=wrong, capture_output=True, text=True, timeout=120)
    assert "no_such_thing" in ran.stderr


def test_what_a_user_wishes_of_grpc_comes_last_and_nothing_else_changes() -> None:
    assert channel.environment({"A": "b"}) == {"A": "b", "GRPC_EXPERIMENTS": "-event_engine_listener"}
    wished = channel.environment({"GRPC_EXPERIMENTS": "event_engine_listener"})
    assert wished == {"GRPC_EXPERIMENTS": "-event_engine_listener,event_engine_listener"}


@pytest.mark.parametrize(("name", "told"), [("serve", "-event_engine_listener"), ("core", None)])
async def test_only_serve_is_told_so(name: str, told: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    seen: list[dict[str, str] | None] = []

    class Started:
        pid, returncode = 2**31 - 1, None

        def __init__(self, command: list[str], *, env: dict[str, str] | None, **more: object) -> None:
            seen.append(env)

    monkeypatch.setattr("subprocess.Popen", Started)
    shared = create_shared(1)
    try:
        config = Config("/m", "m", *["unix:/unused"] * 5)
        Children(Cradle()).start(
            name, Wiring(config, "/m", "f", "i", shared, "", report=-1, rank=-1, parent=os.getpid())
        )
    finally:
        shared.close()
    (env,) = seen
    assert (os.environ if env is None else env).get("GRPC_EXPERIMENTS") == told
