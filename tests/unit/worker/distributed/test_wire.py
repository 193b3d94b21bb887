"""Activations as bytes: every tensor arrives as it was, and nonsense is refused by name."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.proto.v1 import group_pb2
from octavo.worker.distributed.links import Sampled
from octavo.worker.distributed.pipeline import wire
from octavo.worker.distributed.pipeline.wire import Hidden

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def there(message: bytes) -> wire.Received:
    return wire.received(*wire.decode(message))


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 7), max_size=3),
    incarnation=st.text(max_size=40),
    step=st.integers(0, 2**64 - 1),
)
def test_a_tensor_arrives_bit_for_bit(dtype: torch.dtype, shape: list[int], incarnation: str, step: int) -> None:
    sent = torch.randint(0, 255, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype)[..., 0].contiguous()
    message = wire.encode_hidden(incarnation, step, sent)
    activation, _ = wire.decode(message)
    got = there(message)
    assert (activation.incarnation, activation.step) == (incarnation, step)
    assert isinstance(got, Hidden) and got.number == step
    assert got.tensor.dtype == dtype and got.tensor.shape == sent.shape
    assert torch.equal(got.tensor.view(torch.uint8), sent.view(torch.uint8)) if shape else got.tensor.dim() == 0


@given(shape=st.lists(st.integers(1, 9), min_size=2, max_size=2), incarnation=st.text(max_size=200))
def test_the_data_is_read_in_place_and_aligned(shape: list[int], incarnation: str) -> None:
    got = there(wire.encode_hidden(incarnation, 1, torch.ones(shape)))
    assert isinstance(got, Hidden) and got.tensor.data_ptr() % 16 == 0
    got.tensor.add_(1)
    assert torch.equal(got.tensor, torch.full(shape, 2.0))


def test_protobuf_reads_the_whole_message() -> None:
    whole = group_pb2.Activation.FromString(wire.encode_hidden("i", 3, torch.ones(2, 3)))
    assert (whole.step, list(whole.hidden.shape), whole.hidden.dtype) == (3, [2, 3], "F32")
    assert torch.equal(torch.frombuffer(bytearray(whole.data), dtype=torch.float32), torch.ones(6))


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**32 - 1)))
def test_sampled_ids_arrive(number: int, ids: list[int]) -> None:
    sampled = Sampled(number, tuple(ids))
    assert there(wire.encode_sampled("i", sampled)) == sampled


@pytest.mark.parametrize(
    ("named", "data", "said"),
    [
        (group_pb2.Tensor(dtype="F64", shape=[1]), bytes(8), "F64"),
        (group_pb2.Tensor(dtype="F32", shape=[2, 2]), bytes(15), "15 bytes are no F32 tensor of shape"),
        (group_pb2.Tensor(dtype="F32", shape=[2**32 - 1] * 8), bytes(16), "16 bytes are no F32"),
        (group_pb2.Tensor(dtype="BF16", shape=[]), b"", "0 bytes are no BF16"),
    ],
)
def test_a_tensor_that_is_none_is_refused(named: group_pb2.Tensor, data: bytes, said: str) -> None:
    message = group_pb2.Activation(hidden=named, data=data).SerializeToString()
    with pytest.raises(ValueError, match=said):
        there(message)


def test_ids_that_are_no_whole_numbers_are_refused() -> None:
    message = group_pb2.Activation(sampled=group_pb2.Sampled(ids=b"123")).SerializeToString()
    with pytest.raises(ValueError):
        there(message)


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_read_or_refused(message: bytes) -> None:
    try:
        there(message)
    except ValueError:
        pass


@given(st.data())
def test_a_message_that_was_cut_is_refused(data: st.DataObject) -> None:
    message = wire.encode_hidden("incarnation", 7, torch.ones(3, 4))
    with pytest.raises(ValueError):
        there(message[: data.draw(st.integers(1, len(message) - 1))])
