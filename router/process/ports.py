"""The addresses of a router, held by its parent process: its own processes share them, other programs are refused.

SO_REUSEPORT alone would let a second router on the same port take half of the first one's connections.
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from octavo.router.errors import RouterError
from octavo.router.frontend.address import Address

EXIT_CODE = 3  # of a router that cannot listen


class CannotListen(RouterError):
    """Names the flag and the address, and says what to do."""

    def __init__(self, flag: str, address: Address, error: OSError) -> None:
        advice = f"cannot listen: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            advice = "another process listens there: end it (`ss -ltnp` names it), or choose another port"
        super().__init__(f"{flag} {address}: {advice}")


@contextmanager
def reserved(flag: str, address: Address) -> Iterator[Address]:
    """Hold the address without listening, so that no one else takes it and port 0 becomes a number once.

    Raises CannotListen when another process holds it or listens there, also one that shares it by SO_REUSEPORT.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as first, socket.socket(family, socket.SOCK_STREAM) as second:
        try:
            # Without SO_REUSEPORT another one's listener is a conflict. With SO_REUSEADDR the connections that an
            # earlier router left in TIME_WAIT are none.
            first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            first.bind((address.host, address.port))
        except OSError as error:
            raise CannotListen(flag, address, error) from error
        held = replace(address, port=first.getsockname()[1])
        # From now on only sockets with SO_REUSEPORT (this router's processes) may bind, and no other parent can do the
        # same before they listen: Linux looks at the options that the holders have now, unless every bind so far had
        # SO_REUSEADDR. The second one has not. It fails beside connections in TIME_WAIT of a server that had no
        # SO_REUSEPORT; then the second of two routers that start in the same second is not refused.
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        for holder in (first, second):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with suppress(OSError):
            second.bind((held.host, held.port))
        yield held
