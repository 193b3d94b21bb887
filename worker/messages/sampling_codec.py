"""How a request's tokens are drawn, as bytes: a head of fixed layout, and what few ask only where they do.

temperature, top_k, top_p, seed, what follows u8 | [logprobs u32] | [prompt_logprobs u32] | [Adjust]
"""

import struct
from itertools import chain

from octavo.worker.messages.packing import CodecError, MessageReader, pack
from octavo.worker.messages.request import Adjust, Sampling

_SAMPLING = struct.Struct("<dIdQB")
_LOGPROBS, _PROMPT_LOGPROBS, _ADJUST = 1, 2, 4
_COUNT = struct.Struct("<I")
# min_p, penalties: presence, frequency, repetition; min_tokens; bias, allowed, forbidden, bad words
_HEAD = struct.Struct("<ddddIIIII")


def write_sampling(sampling: Sampling) -> bytes:
    """Raises struct.error or OverflowError when a value does not fit its field."""
    top, prompt_top, adjust = sampling.logprobs, sampling.prompt_logprobs, sampling.adjust
    follows = sum(
        flag for flag, part in ((_LOGPROBS, top), (_PROMPT_LOGPROBS, prompt_top), (_ADJUST, adjust)) if part is not None
    )
    head = _SAMPLING.pack(sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed, follows)
    if not follows:
        return head
    counts = b"".join(_COUNT.pack(count) for count in (top, prompt_top) if count is not None)
    return head + counts + (_write_adjust(adjust) if adjust is not None else b"")


def read_sampling(reader: MessageReader) -> Sampling:
    """Raises CodecError."""
    temperature, top_k, top_p, seed, follows = reader.head(_SAMPLING)
    if follows > _LOGPROBS | _PROMPT_LOGPROBS | _ADJUST:
        raise CodecError(f"sampling: unknown parts {follows:#x}")
    top = reader.head(_COUNT)[0] if follows & _LOGPROBS else None
    prompt_top = reader.head(_COUNT)[0] if follows & _PROMPT_LOGPROBS else None
    adjust = _read_adjust(reader) if follows & _ADJUST else None
    return Sampling(temperature, top_k, top_p, seed, adjust, top, prompt_top)


def _write_adjust(adjust: Adjust) -> bytes:
    bias_ids, values = zip(*adjust.bias, strict=True) if adjust.bias else ((), ())
    sizes = len(bias_ids), len(adjust.allowed), len(adjust.forbidden), len(adjust.bad_words)
    head = _HEAD.pack(
        adjust.min_p,
        adjust.presence_penalty,
        adjust.frequency_penalty,
        adjust.repetition_penalty,
        adjust.min_tokens,
        *sizes,
    )
    lengths = map(len, adjust.bad_words)
    numbers = pack(chain(bias_ids, adjust.allowed, adjust.forbidden, lengths, chain.from_iterable(adjust.bad_words)))
    return head + struct.pack(f"<{len(values)}d", *values) + numbers


def _read_adjust(reader: MessageReader) -> Adjust:
    min_p, presence, frequency, repetition, min_tokens, bias, allowed, forbidden, words = reader.head(_HEAD)
    values = reader.head(struct.Struct(f"<{bias}d"))
    bias_ids, allowed_ids, forbidden_ids = (reader.numbers(size) for size in (bias, allowed, forbidden))
    bad_words = tuple(reader.numbers(size) for size in reader.numbers(words))
    return Adjust(
        min_p=min_p,
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        bias=tuple(zip(bias_ids, values, strict=True)),
        allowed=allowed_ids,
        bad_words=bad_words,
        min_tokens=min_tokens,
        forbidden=forbidden_ids,
    )
