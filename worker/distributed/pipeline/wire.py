"""Activations as bytes: a message of group.proto whose tensor is neither copied into protobuf nor out of it.

    | Activation without data, by protobuf | padding | tag, length | data |
                                                                   ^ a multiple of 16 bytes: read in place

Copies through protobuf would be a third of the time that 4 MiB take on the way. It reads the whole message as well.
"""

import math
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from google.protobuf.message import DecodeError

from octavo.proto.v1 import group_pb2
from octavo.worker.distributed.links import Sampled

SERVICE = group_pb2.DESCRIPTOR.services_by_name["Stage"].full_name
LARGEST = (256 << 20) + (64 << 10)  # bytes of a message: a tensor of 256 MiB, and what names it
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ALIGNMENT = 16  # of what `bytes` holds in memory
_VARINT, _LENGTH = 0, 2  # wire types
_FIELDS = group_pb2.Activation.DESCRIPTOR.fields_by_name
_PADDING, _DATA = (_FIELDS[name].number << 3 | _LENGTH for name in ("padding", "data"))


@dataclass(frozen=True, slots=True)
class Hidden:
    """Of one step. tensor: [tokens, hidden size], in the received memory, which it owns."""

    number: int
    tensor: torch.Tensor


Received: TypeAlias = Hidden | Sampled


def encode_introduction(incarnation: str, service_uid: str, rank: int) -> bytes:
    introduction = group_pb2.Introduction(service_uid=service_uid, rank=rank)
    return group_pb2.Activation(incarnation=incarnation, introduction=introduction).SerializeToString()


def encode_hidden(incarnation: str, step: int, hidden: torch.Tensor) -> bytes:
    """hidden: contiguous float32, bfloat16 or float16 of any shape and device."""
    tensor = group_pb2.Tensor(dtype=_NAMES[hidden.dtype], shape=hidden.shape)
    head = group_pb2.Activation(incarnation=incarnation, step=step, hidden=tensor).SerializeToString()
    data = hidden.cpu().reshape(-1).view(torch.uint8).numpy().data
    tail = _varint(_DATA) + _varint(data.nbytes)
    missing = -(len(head) + 2 + len(tail)) % _ALIGNMENT  # 2: tag and length of the padding
    return b"".join((head, bytes((_PADDING, missing)), bytes(missing), tail, data))


def encode_sampled(incarnation: str, sampled: Sampled) -> bytes:
    ids = group_pb2.Sampled(ids=array("I", sampled.ids).tobytes())
    return group_pb2.Activation(incarnation=incarnation, step=sampled.number, sampled=ids).SerializeToString()


def decode(message: bytes) -> tuple[group_pb2.Activation, memoryview]:
    """Everything but the data, and the data in place. Raises ValueError."""
    end, data = len(message), memoryview(b"")
    for tag, start, begin, stop in _walk(message):
        if tag == _DATA:
            if stop != len(message):
                raise ValueError("data is not the last field of the activation")
            end, data = start, memoryview(message)[begin:]
    try:
        return group_pb2.Activation.FromString(message[:end]), data
    except DecodeError as error:
        raise ValueError(f"no activation: {error}") from error


def received(activation: group_pb2.Activation, data: memoryview) -> Received:
    """What `decode` gave, as the rank takes it. Raises ValueError."""
    if activation.HasField("hidden"):
        return Hidden(activation.step, _tensor(activation.hidden, data))
    if not activation.HasField("sampled"):
        raise ValueError("the activation is neither hidden states nor sampled ids")
    ids = array("I")
    ids.frombytes(activation.sampled.ids)
    return Sampled(activation.step, tuple(ids))


def _tensor(named: group_pb2.Tensor, data: memoryview) -> torch.Tensor:
    dtype, shape = _DTYPES.get(named.dtype), tuple(named.shape)
    if dtype is None:
        raise ValueError(f"dtype {named.dtype!r} is none of {', '.join(_DTYPES)}")
    if math.prod(shape) * dtype.itemsize != data.nbytes:
        raise ValueError(f"{data.nbytes} bytes are no {named.dtype} tensor of shape {list(shape)}")
    if not data.nbytes:
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of memory that is not to be written
        flat = torch.frombuffer(data, dtype=dtype)
    if flat.data_ptr() % dtype.itemsize:
        raise ValueError(f"the data of a {named.dtype} tensor begins at an odd byte")
    return flat.view(shape)


def _walk(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(tag, where it starts, where its content begins, where that stops) of each field. Raises ValueError."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        size, begin = _read_varint(message, at)
        at = begin
        if tag & 7 == _LENGTH:
            at += size
        elif tag & 7 != _VARINT:
            raise ValueError(f"no activation has a field with the tag {tag}")
        if at > len(message):
            raise ValueError("the activation ends within a field")
        yield tag, start, begin, at


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("the activation ends within a number")
        value |= (message[at] & 0x7F) << shift
        at += 1
        if message[at - 1] < 0x80:
            return value, at
    raise ValueError("a number of the activation has more than 64 bits")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
