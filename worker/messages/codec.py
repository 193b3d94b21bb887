"""Messages between the processes of a worker, as bytes: what the rings and the stream between pods carry.

    kind u8 | version u8 | a head of fixed layout, with the lengths of what follows | packed arrays

Ids, slots and positions are uint32, keys uint64, all little-endian; sampling parameters are a message of engine.proto.
Arrays are packed whole: a step of 256 rows costs tens of microseconds. `decode` takes nothing on trust: what is short,
long, unknown or of another version is refused.
"""

import struct
from collections.abc import Callable
from itertools import chain

from octavo.shared.sampling_params import InvalidSamplingParams, SamplingParams
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.messages.output import Cancel, Load, Output, Outputs, RefusedRequest, Scores
from octavo.worker.messages.packing import CodecError, MessageReader, pack
from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Admit, Blocks, Forward, Masks, Sample, Scored, Step, StepResult

__all__ = ["VERSION", "CodecError", "Message", "decode", "encode"]

VERSION = 6

_START = struct.Struct("<BB")
_STEP = struct.Struct("<QHHIIIIIII")  # number; bytes of graph, path; then how many of each
_ADMIT = struct.Struct("<IIII")  # slot, generated before, bytes of sampling, tokens
_APPEND = struct.Struct("<III")  # slot, first, blocks
_RESULT = struct.Struct("<QIIII")  # number; ids, failed, scores, prompts
_NEW = struct.Struct("<QiIIIIIIBI")  # key, priority, max_tokens; then sizes, of sampling, salt and grammar in bytes
_KEY = struct.Struct("<Q")
_OUTPUTS = struct.Struct("<IIII")  # requests with one token more; of the others: how many, their ids, their scores
_SCORES = struct.Struct("<III")  # which of the others; bytes of tokens, prompt
_LOAD = struct.Struct("<10Q")
_REFUSED = struct.Struct("<QHI")  # key; bytes of field, message
_MASKS = struct.Struct("<QI")  # number; bytes of the rows
_SLEEP = struct.Struct("<?")  # keep_kv
_MEMORY = struct.Struct("<I?QI")  # rank, asleep, moved bytes; bytes of error
_HASH_BYTES = 16


Message = Step | Masks | StepResult | NewRequest | Cancel | Outputs | Load | RefusedRequest | Sleep | Wake | MemoryState


def encode(message: Message) -> bytes:
    """Raises CodecError when a value does not fit its field."""
    try:
        kind, body = _encode(message)
    except (struct.error, OverflowError, InvalidSamplingParams) as error:
        raise CodecError(f"{type(message).__name__} cannot be packed: {error}") from error
    return b"".join((_START.pack(kind, VERSION), *(body if isinstance(body, tuple) else (body,))))


def decode(data: bytes | memoryview) -> Message:
    """Raises CodecError when `data` is not exactly one message."""
    reader = MessageReader(bytes(data))
    kind, version = reader.head(_START)
    if version != VERSION:
        raise CodecError(f"message of version {version}, this process speaks {VERSION}; run one version everywhere")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise CodecError(f"message of unknown kind {kind}")
    message = decoder(reader)
    reader.end()
    return message


def _encode(message: Message) -> tuple[int, bytes | tuple[bytes, ...]]:
    """The kind, and the body, of several parts where it is large: of these a copy is made once."""
    match message:
        case Step():
            return 1, _encode_step(message)
        case StepResult():
            return 2, _encode_result(message)
        case NewRequest():
            return 3, _encode_new(message)
        case Cancel(key):
            return 4, _KEY.pack(key)
        case Outputs():
            return 5, _encode_outputs(message)
        case Load():
            return 6, _encode_load(message)
        case RefusedRequest(key, field, text):
            name, reason = field.encode(), text.encode()
            return 7, _REFUSED.pack(key, len(name), len(reason)) + name + reason
        case Masks(number, bits):
            return 8, (_MASKS.pack(number, len(bits)), bits)
        case Sleep() | Wake() | MemoryState():
            return _encode_memory(message)


def _encode_memory(message: Sleep | Wake | MemoryState) -> tuple[int, bytes]:
    match message:
        case Sleep(keep_kv):
            return 9, _SLEEP.pack(keep_kv)
        case Wake():
            return 10, b""
        case MemoryState(rank, asleep, moved_bytes, error):
            why = error.encode()
            return 11, _MEMORY.pack(rank, asleep, moved_bytes, len(why)) + why


def _encode_step(step: Step) -> bytes:
    forward, sample = step.forward, step.sample
    graph, path = step.graph.encode(), step.path.encode()
    parts = [
        _STEP.pack(
            step.number,
            len(graph),
            len(path),
            len(forward.admits),
            len(forward.blocks),
            len(forward.slots),
            len(sample.rows),
            len(sample.masked),
            len(forward.zeroed),
            len(sample.scored),
        ),
        graph,
        path,
        pack(
            forward.slots
            + forward.starts
            + forward.counts
            + sample.rows
            + sample.counters
            + sample.masked
            + forward.zeroed
        ),
    ]
    if sample.scored:
        parts.append(pack(chain.from_iterable(sample.scored)))
    for append in forward.blocks:
        parts += (_APPEND.pack(append.slot, append.first, len(append.blocks)), pack(append.blocks))
    for admit in forward.admits:
        sampling = admit.sampling.to_bytes()
        head = _ADMIT.pack(admit.slot, admit.generated_before, len(sampling), len(admit.tokens))
        parts += (head, sampling, pack(admit.tokens))
    return b"".join(parts)


def _decode_step(reader: MessageReader) -> Step:
    number, graph_bytes, path_bytes, admits, appends, rows, samples, masks, zeros, scored = reader.head(_STEP)
    graph, path = reader.text(graph_bytes), reader.text(path_bytes)
    slots, starts, counts = reader.numbers(rows), reader.numbers(rows), reader.numbers(rows)
    rows_sampled, counters, masked = reader.numbers(samples), reader.numbers(samples), reader.numbers(masks)
    zeroed = reader.numbers(zeros)
    sample = Sample(rows_sampled, counters, tuple(Scored(*reader.numbers(3)) for _ in range(scored)), masked)
    changes = tuple(_decode_append(reader) for _ in range(appends))
    admitted = tuple(_decode_admit(reader) for _ in range(admits))
    return Step(number, Forward(admitted, changes, slots, starts, counts, zeroed), sample, graph, path)


def _decode_append(reader: MessageReader) -> Blocks:
    slot, first, blocks = reader.head(_APPEND)
    return Blocks(slot, first, reader.numbers(blocks))


def _decode_admit(reader: MessageReader) -> Admit:
    slot, generated_before, sampling_bytes, tokens = reader.head(_ADMIT)
    sampling = _read_sampling(reader, sampling_bytes)
    return Admit(slot, reader.numbers(tokens), sampling, generated_before)


def _read_sampling(reader: MessageReader, count: int) -> SamplingParams:
    try:
        return SamplingParams.from_bytes(reader.take(count))
    except InvalidSamplingParams as error:
        raise CodecError(f"sampling: {error}") from error


def _encode_result(result: StepResult) -> bytes:
    ids, failed, scores, prompts = result.ids, result.failed, result.scores, result.prompts
    head = _RESULT.pack(result.number, len(ids), len(failed), len(scores), len(prompts))
    if not scores and not prompts:
        return head + pack(ids + failed)
    pieces = [piece for _, piece in scores] + list(prompts)
    entries, lengths = (entry for entry, _ in scores), map(len, pieces)
    return b"".join((head, pack(chain(ids, failed, entries, lengths)), *pieces))


def _decode_result(reader: MessageReader) -> StepResult:
    number, ids, failed, scores, prompts = reader.head(_RESULT)
    sampled, bad, entries = reader.numbers(ids), reader.numbers(failed), reader.numbers(scores)
    pieces = [reader.take(length) for length in reader.numbers(scores + prompts)]
    return StepResult(number, sampled, bad, tuple(zip(entries, pieces, strict=False)), tuple(pieces[scores:]))


def _encode_new(new: NewRequest) -> bytes:
    if any(len(digest) != _HASH_BYTES for digest in new.hashes):
        raise CodecError(f"NewRequest {new.key}: every hash must have {_HASH_BYTES} bytes")
    stops = sorted(new.stop_ids)
    sampling, grammar = new.sampling.to_bytes(), new.grammar.encode()
    ids = (len(new.prompt), len(new.generated), len(stops), len(new.hashes))
    lengths = (len(sampling), *ids, len(new.salt), len(grammar))
    head = _NEW.pack(new.key, new.priority, new.max_tokens, *lengths)
    arrays = pack(chain(new.prompt, new.generated, stops))
    return b"".join((head, sampling, arrays, *new.hashes, new.salt, grammar))


def _decode_new(reader: MessageReader) -> NewRequest:
    key, priority, max_tokens, sampling, prompt, generated, stops, hashes, salt, grammar = reader.head(_NEW)
    return NewRequest(
        key=key,
        priority=priority,
        max_tokens=max_tokens,
        sampling=_read_sampling(reader, sampling),
        prompt=reader.numbers(prompt),
        generated=reader.numbers(generated),
        stop_ids=frozenset(reader.numbers(stops)),
        hashes=tuple(reader.take(_HASH_BYTES) for _ in range(hashes)),
        salt=reader.take(salt),
        grammar=reader.text(grammar),
    )


def _decode_cancel(reader: MessageReader) -> Cancel:
    return Cancel(*reader.head(_KEY))


def _encode_outputs(outputs: Outputs) -> bytes:
    if len(outputs.keys) != len(outputs.ids):
        raise CodecError(f"Outputs: {len(outputs.keys)} keys and {len(outputs.ids)} ids")
    plain = pack(outputs.keys, "Q") + pack(outputs.ids)
    if not outputs.others:
        return _OUTPUTS.pack(len(outputs.keys), 0, 0, 0) + plain
    keys, ids, finishes, cached, scores = zip(*outputs.others, strict=True)
    flat = tuple(chain.from_iterable(ids))
    scored = len(keys) - scores.count(None)
    head = _OUTPUTS.pack(len(outputs.keys), len(keys), len(flat), scored)
    numbers = pack(chain(map(len, ids), cached, flat))
    parts = [head, plain, pack(keys, "Q"), numbers, pack(finishes, "B")]
    if scored:
        for index, found in enumerate(scores):
            if found is not None:
                parts += (_SCORES.pack(index, len(found.tokens), len(found.prompt)), *found)
    return b"".join(parts)


def _decode_outputs(reader: MessageReader) -> Outputs:
    plain, count, total, scored = reader.head(_OUTPUTS)
    plain_keys, plain_ids = reader.numbers(plain, "Q"), reader.numbers(plain)
    keys = reader.numbers(count, "Q")
    lengths, cached, flat = reader.numbers(count), reader.numbers(count), reader.numbers(total)
    if sum(lengths) != total:
        raise CodecError(f"outputs: {count} of them name {sum(lengths)} ids, the message has {total}")
    try:
        finishes = tuple(map(_FINISHES.__getitem__, reader.numbers(count, "B")))
    except KeyError as error:
        raise CodecError(f"outputs: unknown finish {error}") from error
    ids, at = [], 0
    for length in lengths:
        ids.append(flat[at : at + length])
        at += length
    scores = _decode_scores(reader, count, scored)
    others = map(Output._make, zip(keys, ids, finishes, cached, scores, strict=True))
    return Outputs(plain_keys, plain_ids, tuple(others))


def _decode_scores(reader: MessageReader, count: int, scored: int) -> list[Scores | None]:
    """One entry an output."""
    scores: list[Scores | None] = [None] * count
    last = -1
    for _ in range(scored):
        index, tokens, prompt = reader.head(_SCORES)
        if not last < index < count:
            raise CodecError(f"outputs: scores of entry {index} after entry {last}, of {count}")
        scores[index] = Scores(reader.take(tokens), reader.take(prompt))
        last = index
    return scores


def _encode_load(load: Load) -> bytes:
    return _LOAD.pack(
        load.prompt_tokens,
        load.running,
        load.waiting,
        load.free_blocks,
        load.total_blocks,
        load.cached_blocks,
        load.received,
        load.preemptions,
        load.cache_queries,
        load.cache_hits,
    )


def _decode_load(reader: MessageReader) -> Load:
    return Load(*reader.head(_LOAD))


def _decode_masks(reader: MessageReader) -> Masks:
    number, size = reader.head(_MASKS)
    return Masks(number, reader.take(size))


def _decode_refused(reader: MessageReader) -> RefusedRequest:
    key, field_bytes, message_bytes = reader.head(_REFUSED)
    return RefusedRequest(key, reader.text(field_bytes), reader.text(message_bytes))


def _decode_sleep(reader: MessageReader) -> Sleep:
    return Sleep(*reader.head(_SLEEP))


def _decode_memory(reader: MessageReader) -> MemoryState:
    rank, asleep, moved_bytes, error_bytes = reader.head(_MEMORY)
    return MemoryState(rank, asleep, moved_bytes, reader.text(error_bytes))


_FINISHES = {int(finish): finish for finish in Finish}
_DECODERS: dict[int, Callable[[MessageReader], Message]] = {
    1: _decode_step,
    2: _decode_result,
    3: _decode_new,
    4: _decode_cancel,
    5: _decode_outputs,
    6: _decode_load,
    7: _decode_refused,
    8: _decode_masks,
    9: _decode_sleep,
    10: lambda reader: Wake(),
    11: _decode_memory,
}
