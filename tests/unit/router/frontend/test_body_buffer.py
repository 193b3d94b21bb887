"""Bodies in memory: what counts is what has come, and a client cannot keep a place by saying that more will."""

import asyncio
from types import SimpleNamespace

import pytest
from aiohttp import HttpVersion11

from octavo.router.frontend import body_buffer as body_buffer
from octavo.router.frontend.body_buffer import MAX_BODY_BYTES, MAX_COMING_BYTES, MAX_HELD_BYTES, BodyBuffer
from octavo.router.jobs.generation import RequestError


class Content:
    """A body that comes in these pieces, and then ends or never does."""

    def __init__(self, *pieces: bytes, ends: bool = True, arrived: bool = False) -> None:
        """arrived: all of it is there at once."""
        self._pieces = [*pieces, b""] if ends else list(pieces)
        self._arrived = arrived

    def is_eof(self) -> bool:
        return self._arrived

    def read_nowait(self) -> bytes:
        return b"".join(self._pieces)

    async def readany(self) -> bytes:
        if not self._pieces:
            await asyncio.Event().wait()
        return self._pieces.pop(0)


def request(*pieces: bytes, length: int | None = None, ends: bool = True, arrived: bool = False):
    content = Content(*pieces, ends=ends, arrived=arrived)
    return SimpleNamespace(content=content, content_length=length, headers={}, version=HttpVersion11, transport=None)


async def test_bodies_that_never_come_take_no_room_from_others() -> None:
    kept = BodyBuffer()
    count = 2 * MAX_HELD_BYTES // MAX_BODY_BYTES
    silent = [asyncio.create_task(read(kept, request(length=MAX_BODY_BYTES, ends=False))) for _ in range(count)]
    await asyncio.sleep(0)
    assert await read(kept, request(b"{", b"}", length=2)) == b"{}"
    for task in silent:
        task.cancel()
    await asyncio.gather(*silent, return_exceptions=True)
    assert kept.bytes == 0


async def test_a_body_without_a_length_counts_while_it_comes() -> None:
    kept = BodyBuffer()
    first = [
        asyncio.create_task(read(kept, request(bytes(MAX_BODY_BYTES), ends=False)))
        for _ in range(MAX_COMING_BYTES // MAX_BODY_BYTES)
    ]
    await asyncio.sleep(0)
    with pytest.raises(RequestError) as refusal:
        await read(kept, request(b"{}", ends=False))
    assert refusal.value.status == 429
    for task in first:
        task.cancel()
    await asyncio.gather(*first, return_exceptions=True)


async def test_bodies_that_stop_short_of_their_end_leave_room_for_complete_ones() -> None:
    kept = BodyBuffer()
    short = [
        asyncio.create_task(read(kept, request(bytes(MAX_BODY_BYTES - 1), length=MAX_BODY_BYTES, ends=False)))
        for _ in range(2 * MAX_HELD_BYTES // MAX_BODY_BYTES)
    ]
    await asyncio.sleep(0)
    assert kept.bytes <= MAX_COMING_BYTES
    assert len(await read(kept, request(bytes(MAX_BODY_BYTES), length=MAX_BODY_BYTES))) == MAX_BODY_BYTES
    for task in short:
        task.cancel()
    endings = await asyncio.gather(*short, return_exceptions=True)
    assert [error.status for error in endings if isinstance(error, RequestError)] == [429] * (len(short) - 16)
    assert kept.bytes == 0


async def test_a_body_that_does_not_come_to_its_end_gets_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_buffer, "BODY_S", 0.05)
    with pytest.raises(RequestError) as refusal:
        await asyncio.wait_for(read(BodyBuffer(), request(b"{", length=2, ends=False)), 5)
    assert refusal.value.status == 408


async def test_a_body_that_came_with_its_head_takes_its_room_and_gives_it_back() -> None:
    kept = BodyBuffer()
    with kept.of(request(b"{", b"}", length=2, arrived=True)) as held:
        assert await held.read() == b"{}" and kept.bytes == held.size == 2
    assert kept.bytes == 0
    with kept.room(MAX_HELD_BYTES), pytest.raises(RequestError) as refusal:
        await read(kept, request(b"{}", arrived=True))
    assert refusal.value.status == 429 and kept.bytes == 0
    with pytest.raises(RequestError) as refusal:
        await read(kept, request(bytes(MAX_BODY_BYTES + 1), arrived=True))
    assert refusal.value.status == 413 and kept.bytes == 0


async def test_a_body_over_the_bound_gets_413_with_and_without_a_length() -> None:
    for sent in (request(length=MAX_BODY_BYTES + 1), request(bytes(MAX_BODY_BYTES), b"x", ends=False)):
        with pytest.raises(RequestError) as refusal:
            await read(BodyBuffer(), sent)
        assert refusal.value.status == 413


async def read(kept: BodyBuffer, sent) -> bytes:
    with kept.of(sent) as held:
        return await held.read()
