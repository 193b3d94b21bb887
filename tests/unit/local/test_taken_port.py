"""A port that another service takes while the groups load: its answers are not taken for our own."""

from pathlib import Path

import pytest

from octavo.local.children import Child
from octavo.local.flags import parse_args
from octavo.local.service import Service
from octavo.local.start_failed import StartFailed
from octavo.router.process.ports import EXIT_CODE


async def test_a_router_that_was_refused_its_port_fails_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(parse_args(["--device", "cpu", "--port", "8000"]), tmp_path)
    service._router = Child("router", [], print)
    monkeypatch.setattr(service, "_ready", lambda: True)  # the owner of the port answers
    await service._until_ready()
    service._router.last_code = EXIT_CODE
    with pytest.raises(StartFailed, match="--port 8000: another process listens there"):
        await service._until_ready()
