"""One prompt to a running server; the answer is printed as it streams."""

import http.client
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from octavo.errors import OctavoError

TIMEOUT_S = 120.0


class AskError(OctavoError):
    """The server refused, or ended the answer with an error; the message is the server's."""


@dataclass(frozen=True, slots=True)
class Server:
    """Address and model of the server. api_key: None if the server needs none."""

    host: str
    port: int
    model: str
    api_key: str | None = None


def ask(server: Server, prompt: str, max_tokens: int = 64) -> Iterator[str]:
    """Streams the answer of /v1/chat/completions as pieces of text. Raises AskError, OSError."""
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
    }
    headers = {"Content-Type": "application/json"}
    if server.api_key is not None:
        headers["Authorization"] = f"Bearer {server.api_key}"
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
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


def show(server: Server, prompt: str) -> bool:
    """Prints the prompt and the answer; False if there was no answer."""
    print(f"\n> {prompt}", flush=True)
    try:
        for piece in ask(server, prompt):
            sys.stdout.write(piece)
            sys.stdout.flush()
    except (AskError, OSError) as error:
        print(f"octavo run: no answer: {error}", file=sys.stderr)
        return False
    print("\n", flush=True)
    return True
