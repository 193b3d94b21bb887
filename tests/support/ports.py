"""Ports for processes that a test starts."""

import random
import socket

# Below those that the kernel gives to connections and to who binds port 0: one of these may be gone a moment later.
_PORTS = range(20_000, 32_000)
_DRAW = random.SystemRandom()  # whatever seed a test sets


def free_port() -> int:
    """Of 127.0.0.1: nobody's now, and nobody's by chance."""
    while True:
        port = _DRAW.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
