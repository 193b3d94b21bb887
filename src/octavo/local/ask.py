"""One question to a running server, its answer written as it comes."""

import http.client
import json
import sys
from collections.abc import Iterator

TIMEOUT_S = 120.0


class AskError(Exception):
    """The server refused, or ended the answer with an error; the message is the server's."""


def ask(host: str, port: int, model: str, prompt: str, max_tokens: int = 64) -> Iterator[str]:
    """Streams the answer of /v1/chat/completions as pieces of text. Raises AskError, OSError."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
    }
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise AskError(_message(json.loads(answer.read())))
        yield from _pieces(answer)
    finally:
        connection.close()


def _pieces(answer: http.client.HTTPResponse) -> Iterator[str]:
    for line in answer:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise AskError(_message(event))
        for choice in event["choices"]:
            yield choice["delta"].get("content") or ""


def _message(event: dict[str, dict[str, str]]) -> str:
    return str(event.get("error", {}).get("message", event))


def show(host: str, port: int, model: str, prompt: str) -> bool:
    """Prints question and answer; False when there was none."""
    print(f"\n> {prompt}", flush=True)
    try:
        for piece in ask(host, port, model, prompt):
            sys.stdout.write(piece)
            sys.stdout.flush()
    except (AskError, OSError) as error:
        print(f"octavo run: no answer: {error}", file=sys.stderr)
        return False
    print("\n", flush=True)
    return True
