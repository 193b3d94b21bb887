"""The shared-memory rings lose, repeat and tear nothing."""

import os
import select
import struct
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.worker.ipc.ring import RingBroken, RingReader, RingWriter, checksum, create
from octavo.worker.ipc.ring_sender import RingSender, send_to_all


def _close(*ends):
    for end in ends:
        end.close()
    for fd in ends[0].fds.all():
        os.close(fd)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.one_of(st.binary(max_size=40), st.integers(0, 4080).map(lambda n: bytes([n % 251]) * n), st.just(None)),
        max_size=80,
    )
)
def test_records_of_any_size_arrive_whole_and_in_order_across_the_wrap(actions):
    fds = create("test", 4096)
    writer, reader = RingWriter(fds), RingReader(fds)
    sent, received = [], []
    for action in actions:
        if action is None:
            record = reader.pop()
            if record is not None:
                received.append(record)
            continue
        while not writer.push(action):
            record = reader.pop()
            assert record is not None, "a full ring has something to read"
            received.append(record)
        sent.append(action)
    while (record := reader.pop()) is not None:
        received.append(record)
    assert received == sent
    _close(writer, reader)


def test_a_full_ring_refuses_and_wakes_the_writer_when_there_is_room():
    fds = create("test", 4096)
    writer, reader = RingWriter(fds), RingReader(fds)
    while writer.push(b"x" * 100):
        pass
    assert not select.select([fds.space], [], [], 0)[0]
    assert reader.pop() == b"x" * 100
    assert select.select([fds.space], [], [], 0)[0]
    assert writer.push(b"x" * 100)
    _close(writer, reader)


def test_a_record_that_can_never_fit_is_an_error_not_a_wait():
    fds = create("test", 4096)
    writer = RingWriter(fds)
    assert writer.push(b"x" * writer.largest)
    with pytest.raises(ValueError, match="larger than the ring"):
        writer.push(b"x" * (writer.largest + 1))
    _close(writer)


def test_a_write_that_was_never_published_is_not_read():
    fds = create("test", 4096)
    writer, reader = RingWriter(fds), RingReader(fds)
    writer._put(0, struct.pack("<II", 3, 0) + b"abc")  # a writer that died before it moved its cursor
    assert reader.pop() is None
    assert writer.push(b"whole")
    assert reader.pop() == b"whole"
    _close(writer, reader)


def test_an_incomplete_record_is_never_delivered_and_in_the_end_called_broken():
    fds = create("test", 4096)
    writer, reader = RingWriter(fds), RingReader(fds)
    writer.push(b"a record whose middle is lost")
    os.pwrite(fds.memory, b"\0\0\0", 4096 + 12)
    with pytest.raises(RingBroken, match="checksum"):
        for _ in range(2000):
            assert reader.pop() is None
    _close(writer, reader)


def test_a_record_of_the_lap_before_is_not_taken_for_a_new_one():
    fds = create("test", 4096)
    writer, reader = RingWriter(fds), RingReader(fds)
    for _ in range(2):
        assert writer.push(b"x" * 2040)
        assert reader.pop() == b"x" * 2040
    writer._words[8] += 2048  # the cursor is seen before what was written
    assert reader.pop() is None
    _close(writer, reader)


def test_one_record_goes_to_several_rings_wherever_they_stand():
    rings = [create("test", 4096) for _ in range(3)]
    senders, readers = [RingSender(fds) for fds in rings], [RingReader(fds) for fds in rings]
    senders[1].send(b"before")
    senders[2].send(b"x" * 4000)
    for sender in senders:
        sender.flush()
    record = bytes(range(256)) * 4
    send_to_all(senders, record)
    assert [sender.empty for sender in senders] == [True, True, False], "the last one has no room yet"
    assert readers[2].pop() == b"x" * 4000
    senders[2].flush()
    assert readers[1].pop() == b"before"
    assert [reader.pop() for reader in readers] == [record] * 3
    for sender, reader in zip(senders, readers, strict=True):
        _close(sender, reader)


def test_a_record_that_is_not_what_its_checksum_says_is_not_delivered():
    fds = create("test", 4096)
    writer, reader = RingWriter(fds), RingReader(fds)
    assert writer.push(b"one", checksum(b"two"))
    assert reader.pop() is None
    _close(writer, reader)


@pytest.mark.parametrize("place", [0, 100_000, 199_999])
def test_of_a_large_payload_all_is_checked_where_writes_may_show_in_any_order(place):
    sent = bytearray(200_000)
    before = checksum(bytes(sent), in_order=False), checksum(bytes(sent), in_order=True)
    sent[place] = 1
    assert checksum(bytes(sent), in_order=False) != before[0]
    at_an_end = place != 100_000
    assert (checksum(bytes(sent), in_order=True) != before[1]) == at_an_end


def test_large_records_arrive_whole_across_the_wrap():
    fds = create("test", 1 << 20)
    writer, reader = RingWriter(fds), RingReader(fds)
    for turn in range(5):
        record = bytes([turn, 255 - turn]) * 200_000
        assert writer.push(record)
        assert reader.pop() == record
    _close(writer, reader)


_ECHO = """
import select, sys
from octavo.worker.ipc.ring import RingFds, RingReader, RingWriter
there, back = RingReader(RingFds(*map(int, sys.argv[1:4]))), RingWriter(RingFds(*map(int, sys.argv[4:7])))
while True:
    record = there.pop()
    if record is None:
        select.select([there.fds.data], [], [], 0.05)
        continue
    while not back.push(record):
        select.select([back.fds.space], [], [], 0.05)
    if record == b"end":
        break
"""


def test_two_processes_exchange_thousands_of_records_through_small_rings():
    there, back = create("there", 8192), create("back", 8192)
    writer, reader = RingWriter(there), RingReader(back)
    fds = [*there.all(), *back.all()]
    child = subprocess.Popen([sys.executable, "-c", _ECHO, *map(str, fds)], pass_fds=fds)
    records = [bytes([n % 256]) * (n * 37 % 3000) for n in range(5000)] + [b"end"]
    sent, received = 0, []
    while len(received) < len(records):
        assert child.poll() in (None, 0)
        while sent < len(records) and writer.push(records[sent]):
            sent += 1
        while (record := reader.pop()) is not None:
            received.append(record)
        select.select([back.data, there.space], [], [], 0.01)
    assert child.wait(timeout=10) == 0
    assert received == records
    writer.close()
    reader.close()
    for fd in fds:
        os.close(fd)
