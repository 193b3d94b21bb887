"""Answers of octavo.v1.Inference, as its messages."""

from collections.abc import Iterable

from octavo.proto.v1 import octavo_pb2
from octavo.router.answers.delta import Usage

REASONS = {"stop": octavo_pb2.FINISH_REASON_STOP, "length": octavo_pb2.FINISH_REASON_LENGTH}


def output(index: int, text: str, ids: Iterable[int], reason: str | None) -> octavo_pb2.Output:
    """Some of one generation. reason: why it ended; None: it goes on."""
    made = octavo_pb2.Output(index=index, text=text, token_ids=ids)
    if reason is not None:
        made.finish_reason = REASONS[reason]
    return made


def usage(used: Usage) -> octavo_pb2.Usage:
    return octavo_pb2.Usage(prompt_tokens=used.prompt, completion_tokens=used.completion, cached_tokens=used.cached)
