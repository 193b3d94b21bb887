"""A helper process: parses, renders and encodes one request at a time, so that it can be killed when that never ends.

    router -> stdin:   header length, payload length, header (JSON), payload
    stdout -> router:  the same; an answer to each

    {"load": [[name, size], ...],                                  -> {}
     "parsers": [tools, reasoning]} + files
    {"read": a Form, "context_length": N} + the client's body      -> {"request": {...}, "sizes": [...], "echoes":
    [...],
                                                                        "grammar": "...", "grammar_field": "..."}
                                                                        + packed ids
    {"read": an Operation, ...} + the client's body                -> {"model": ..., "unknown": [...]} + the answer
    {"read": "detokenize", ...} + the client's message             -> {"model": ...} + text
    what a client got wrong                                        -> {"error": {...}}

Nothing is pickled: what comes out of a template is not trusted.
"""

import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, BinaryIO, NamedTuple

import orjson

from octavo.router.constrained.formats import Formats
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.chat import DEFAULT_RENDERING
from octavo.router.openai_api.openai import ParsedRequest
from octavo.router.openai_api.options import from_json as options_of
from octavo.router.openai_api.sampling import from_json as sampling_of
from octavo.router.openai_api.tools.definitions import ToolUse
from octavo.router.parsers.parser_flags import ParserFlags
from octavo.router.text.bodies import Detokenised, EncodedRequest, decode, detokenise, error_of
from octavo.router.text.model_files import ModelFilesInvalid
from octavo.router.text.tokenizer import ModelTokenizer
from octavo.router.text.tokenizing import OPERATIONS, Tokenized, run
from octavo.router.tokenizer_pool.encode_request import prepare
from octavo.shared.parent import end_with_parent

LENGTHS = 8  # two uint32
SELF_TERMINATE_S = 10.0  # an orphan in an endless loop ends by itself
MEMORY_BYTES = 4 << 30
OUT_OF_MEMORY = 12  # exit code, where not even an answer could be made

Header = dict[str, Any]  # Any: decoded JSON


class HelperModel(NamedTuple):
    text: ModelTokenizer
    formats: Formats


def pack(header: Mapping[str, object], payload: bytes = b"") -> bytes:
    head = orjson.dumps(header)
    return len(head).to_bytes(4, "little") + len(payload).to_bytes(4, "little") + head + payload


def main() -> int:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints may disturb the answers
    model: HelperModel | None = None
    while (frame := _receive(sys.stdin.buffer)) is not None:
        header, payload = frame
        signal.setitimer(signal.ITIMER_REAL, SELF_TERMINATE_S)
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


def _load(header: Header, payload: bytes) -> tuple[HelperModel | None, bytes]:
    files: dict[str, bytes] = {}
    start = 0
    for name, size in header["load"]:
        files[name] = payload[start : start + size]
        start += size
    try:
        text = ModelTokenizer(files, 0)
        return HelperModel(text, Formats.of(text, ParserFlags(*header["parsers"]))), pack({})
    except ModelFilesInvalid as error:
        return None, pack({"invalid": str(error)})


def _read(loaded: HelperModel | None, header: Header, payload: bytes) -> bytes:
    assert loaded is not None, "a model is loaded before anything is read"
    model = loaded.text.within(header["context_length"])
    try:
        if header["read"] == "detokenize":
            read = detokenise(model, payload)
            return pack({"model": read.model}, read.text.encode())
        if header["read"] in OPERATIONS:
            done = run(model, header["read"], decode(payload))
            return pack({"model": done.model, "unknown": done.unknown}, done.body)
        encoded = prepare(model, header["read"], payload, loaded.formats)
    except RequestError as error:
        return pack({"error": error_of(error)})
    except MemoryError:
        return pack(
            {"error": error_of(RequestError(400, "invalid_request_error", "too_large", "it needs too much memory"))}
        )
    bare = replace(encoded.request, prompts=(), messages=(), rendering=DEFAULT_RENDERING, structured=None)
    head = {
        "request": asdict(bare), "sizes": [len(ids) for ids in encoded.prompts], "echoes": encoded.echoes,
        "grammar": encoded.grammar, "grammar_field": encoded.grammar_field, "thought": encoded.thought,
    }  # fmt: skip
    return pack(head, b"".join(encoded.prompts))


def error_in(header: Header) -> RequestError | None:
    """The router's end: what a helper found wrong."""
    if (error := header.get("error")) is None:
        return None
    return RequestError(error["status"], error["type"], error["code"], error["message"], field=error["field"])


def tokenized(header: Header, payload: bytes) -> Tokenized:
    """The router's end: what an operation made."""
    return Tokenized(payload, header["model"], tuple(header["unknown"]))


def encoded(header: Header, payload: bytes) -> EncodedRequest:
    """The router's end: what a helper read."""
    request = header["request"] | {"prompts": (), "messages": (), "rendering": DEFAULT_RENDERING}
    request = request | {name: tuple(request[name]) for name in ("given", "stop", "stop_ids", "unknown")}
    request["sampling"], request["options"] = sampling_of(request["sampling"]), options_of(request["options"])
    if (use := request["tool_use"]) is not None:
        request["tool_use"] = ToolUse(**(use | {name: tuple(use[name]) for name in ("names", "strict")}))
    prompts: list[bytes] = []
    start = 0
    for size in header["sizes"]:
        prompts.append(payload[start : start + size])
        start += size
    rest = {name: header[name] for name in ("grammar", "grammar_field", "thought")}
    return EncodedRequest(ParsedRequest(**request), tuple(prompts), tuple(header["echoes"]), **rest)


def detokenised(header: Header, payload: bytes) -> Detokenised:
    """The router's end: what a helper decoded."""
    return Detokenised(header["model"], payload.decode())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
