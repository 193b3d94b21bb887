"""Ports for processes that a test starts."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the ports that the kernel gives to connections and for port 0: one of these may be gone a moment later.
_PORTS = range(20_000, 32_000)
_DRAW = random.SystemRandom()  # whatever seed a test sets
_given: set[int] = set()
# A byte for each port, locked by the process that gave it until that ends: several runs of tests go on at once.
_claims = (Path(tempfile.gettempdir()) / f"octavo-test-ports-{os.getuid()}").open("ab")


def free_port() -> int:
    """Of 127.0.0.1: unused now, and not given again while this run of tests goes on."""
    while True:
        port = _DRAW.choice(_PORTS)
        if port not in _given and _claimed(port) and _unbound(port):
            _given.add(port)
            return port


def _claimed(port: int) -> bool:
    try:
        fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _unbound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
