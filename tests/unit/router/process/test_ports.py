"""A router's address is shared by its own processes and refused to everybody else."""

import socket
from collections.abc import Iterator

import pytest

from octavo.router.frontend.address import Address
from octavo.router.process.ports import CannotListen, reserved

ANY = Address("127.0.0.1", 0)


def listening(address: Address) -> socket.socket:
    """As a router's process listens."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((address.host, address.port))
    listener.listen()
    return listener


@pytest.fixture
def held() -> Iterator[Address]:
    with reserved("--http", ANY) as address:
        yield address


def refused(address: Address) -> str:
    with pytest.raises(CannotListen) as caught, reserved("--http", address):
        pass
    return str(caught.value)


def test_a_second_holder_is_refused_before_a_process_listens(held: Address) -> None:
    assert f"--http {held}: another process listens there" in refused(held)


def test_processes_of_the_holder_share_it_and_a_second_holder_is_refused(held: Address) -> None:
    with listening(held), listening(held):
        assert "another port" in refused(held)
        assert "another port" in refused(Address("0.0.0.0", held.port))
    with listening(held):  # one that is started again
        assert "another port" in refused(held)


def test_connections_that_an_earlier_router_closed_do_not_keep_the_next_from_the_port() -> None:
    with reserved("--http", ANY) as address, listening(address) as listener:
        client = socket.create_connection((address.host, address.port))
        accepted, _ = listener.accept()
        accepted.close()  # it closes first: its end stays in TIME_WAIT
        assert client.recv(1) == b""
        client.close()
    with reserved("--http", address) as again:
        assert again == address


def test_any_other_error_names_the_flag_and_the_address() -> None:
    assert refused(Address("192.0.2.1", 80)).startswith("--http 192.0.2.1:80: cannot listen: ")
