"""serve's link to the core: a record that makes no sense ends the incarnation, and no request waits for ever."""

import asyncio

import pytest

from octavo.worker.ipc.process_context import create_shared
from octavo.worker.ipc.ring import RingWriter
from octavo.worker.leader.core_channel import CoreChannel
from octavo.worker.messages.codec import CodecError, decode


async def test_a_record_that_cannot_be_read_breaks_the_link():
    shared = create_shared(1)
    link = CoreChannel(shared, decode, lambda: None)
    link.start()
    RingWriter(shared.outbox).push(b"\xff\xff nonsense")
    try:
        with pytest.raises(CodecError):
            await asyncio.wait_for(link.broken, 5)
    finally:
        asyncio.get_running_loop().remove_reader(shared.inbox.space)


async def test_a_link_that_works_is_not_broken():
    shared = create_shared(1)
    seen: list[bytes] = []
    link = CoreChannel(shared, seen.append, lambda: None)
    link.start()
    RingWriter(shared.outbox).push(b"good")
    await asyncio.sleep(0.05)
    loop = asyncio.get_running_loop()
    loop.remove_reader(shared.inbox.space)
    loop.remove_reader(shared.outbox.data)
    assert seen == [b"good"] and not link.broken.done()
