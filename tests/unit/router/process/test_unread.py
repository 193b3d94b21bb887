"""A client that reads nothing of its answer is given up by the kernel, however much there is for it."""

import socket
import time

import pytest

from octavo.router.process import process
from octavo.router.process.config import parse_arguments


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="of Linux")
def test_a_connection_whose_other_end_takes_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "UNREAD_MS", 500)
    config = parse_arguments(["--group", "unix:/x", "--http", "127.0.0.1:0"])
    with process._listener(config) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as ours:
            ours.setblocking(False)
            until = time.monotonic() + 20
            with pytest.raises(TimeoutError):
                while time.monotonic() < until:
                    try:
                        ours.send(bytes(65536))
                    except BlockingIOError:
                        time.sleep(0.05)
