"""A helper process: parses, renders and encodes one request at a time, so that it can be killed when that never ends.

    router -> stdin:   header length, payload length, header (JSON), payload
    stdout -> router:  the same; an answer to each

    {"load": [[name, size], ...], "context_length": N} + files     -> {}
    {"read": "chat" | "completion"} + the client's body           -> {"ask": {...}, "sizes": [...], ...} + packed ids
    what a client got wrong                                        -> {"error": {...}}

Nothing is pickled: what comes out of a template is not trusted.
"""

import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, BinaryIO

import orjson

from octavo.router.bodies import Prepared, error_of, prepare
from octavo.router.chat import PLAIN
from octavo.router.generation import RequestError
from octavo.router.openai import Ask
from octavo.router.tokens import ModelFilesInvalid, TextModel
from octavo.router.tools.definitions import ToolUse

LENGTHS = 8  # two uint32
SUICIDE_S = 10.0  # an orphan in an endless loop ends by itself
MEMORY_BYTES = 4 << 30

Header = dict[str, Any]  # Any: decoded JSON


def pack(header: Mapping[str, object], payload: bytes = b"") -> bytes:
    head = orjson.dumps(header)
    return len(head).to_bytes(4, "little") + len(payload).to_bytes(4, "little") + head + payload


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints may disturb the answers
    model: TextModel | None = None
    while (frame := _receive(sys.stdin.buffer)) is not None:
        header, payload = frame
        signal.setitimer(signal.ITIMER_REAL, SUICIDE_S)
        if "load" in header:
            model, answer = _load(header, payload)
        else:
            answer = _read(model, header, payload)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            answers.write(answer)
            answers.flush()
        except BrokenPipeError:
            os._exit(0)  # the router is gone
    return 0


def _receive(stream: BinaryIO) -> tuple[Header, bytes] | None:
    lengths = stream.read(LENGTHS)
    if len(lengths) < LENGTHS:
        return None
    head = stream.read(int.from_bytes(lengths[:4], "little"))
    payload = stream.read(int.from_bytes(lengths[4:], "little"))
    return orjson.loads(head), payload


def _load(header: Header, payload: bytes) -> tuple[TextModel | None, bytes]:
    files: dict[str, bytes] = {}
    start = 0
    for name, size in header["load"]:
        files[name] = payload[start : start + size]
        start += size
    try:
        return TextModel(files, header["context_length"]), pack({})
    except ModelFilesInvalid as error:
        return None, pack({"invalid": str(error)})


def _read(model: TextModel | None, header: Header, payload: bytes) -> bytes:
    assert model is not None, "a model is loaded before anything is read"
    try:
        prepared = prepare(model, header["read"], payload)
    except RequestError as error:
        return pack({"error": error_of(error)})
    except MemoryError:
        return pack(
            {"error": error_of(RequestError(400, "invalid_request_error", "too_large", "it needs too much memory"))}
        )
    bare = replace(prepared.ask, prompts=(), messages=(), rendering=PLAIN)
    told = {"sizes": [len(ids) for ids in prepared.prompts], "reasoning_open": prepared.reasoning_open}
    return pack({"ask": asdict(bare), **told}, b"".join(prepared.prompts))


def answer(header: Header, payload: bytes) -> Prepared:
    """The router's end: what a helper answered. Raises RequestError."""
    if (error := header.get("error")) is not None:
        raise RequestError(error["status"], error["type"], error["code"], error["message"], field=error["field"])
    ask = header["ask"] | {"prompts": (), "messages": (), "rendering": PLAIN}
    ask = ask | {"stop": tuple(ask["stop"]), "stop_ids": tuple(ask["stop_ids"])}
    if (use := ask["tool_use"]) is not None:
        ask = ask | {"tool_use": ToolUse(tuple(use["names"]), use["parallel"])}
    prompts: list[bytes] = []
    start = 0
    for size in header["sizes"]:
        prompts.append(payload[start : start + size])
        start += size
    return Prepared(Ask(**ask), tuple(prompts), header["reasoning_open"])


if __name__ == "__main__":
    sys.exit(main())
