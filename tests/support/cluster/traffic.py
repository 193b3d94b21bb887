"""Clients of a service that serves the `letters` model, whose right answers are known: what they lose, they tell."""

import http.client
import itertools
import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import openai
from support.patience import PATIENCE_S, Bound, calm_s

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
ANSWER = 6  # tokens


class Traffic:
    """Clients that send short requests one after the other. On exit they stop; `check` fails on any that was lost."""

    def __init__(self, client: openai.OpenAI, clients: int = 3, pause_s: float = 0.2, model: str = "letters") -> None:
        self.answered: list[float] = []  # monotonic seconds at which each answer came
        self._calm: dict[float, float] = {}  # of the beginning and each answer, by a clock that stands still when busy
        self.lost: list[str] = []
        self._client, self._pause_s, self._model = client, pause_s, model
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(index,), daemon=True) for index in range(clients)]

    def __enter__(self) -> "Traffic":
        self._calm[time.monotonic()] = calm_s()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if error is None:
            self.check()

    def check(self) -> None:
        assert not self.lost, f"{len(self.lost)} requests lost, {len(self.answered)} answered: {self.lost[:5]}"
        assert self.answered, "no request was answered"

    def longest_gap_s(self, since: float) -> float:
        """The longest time without an answer after `since` (monotonic), in calm seconds."""
        now = time.monotonic()
        calm = self._calm | {now: calm_s()}
        pairs = itertools.pairwise(sorted(calm))
        return max(min(b - max(a, since), calm[b] - calm[a]) for a, b in pairs if b > since)

    def _ask(self, index: int) -> None:
        number = index
        while not self._stop.wait(self._pause_s):
            number += 3
            begin = number % len(ALPHABET)
            expected = (ALPHABET * 2)[begin + 1 : begin + 1 + ANSWER]
            try:
                answer = self._client.completions.create(
                    model=self._model, prompt=ALPHABET[begin], max_tokens=ANSWER, temperature=0
                )
            except openai.OpenAIError as error:
                cause = f" caused by {error.__cause__!r}" if error.__cause__ else ""
                self.lost.append(f"{time.strftime('%T')} {error!r}{cause}")
                continue
            if answer.choices[0].text != expected:
                self.lost.append(f"{ALPHABET[begin]} was answered by {answer.choices[0].text!r}, not {expected!r}")
            else:
                at = time.monotonic()
                self._calm[at] = calm_s()
                self.answered.append(at)


@dataclass(slots=True)
class Streamed:
    """A stream as it came. broken: how the connection ended, if not as HTTP wants it."""

    status: int = 0
    frames: list[dict[str, Any]] = field(default_factory=list)  # Any: JSON
    done: bool = False
    broken: str = ""

    @property
    def text(self) -> str:
        return "".join(choice["text"] for frame in self.frames for choice in frame.get("choices", ()))

    @property
    def errors(self) -> list[dict[str, Any]]:  # Any: JSON
        return [frame["error"] for frame in self.frames if "error" in frame]

    @property
    def finish(self) -> list[str]:
        return [
            choice["finish_reason"]
            for frame in self.frames
            for choice in frame.get("choices", ())
            if choice["finish_reason"]
        ]

    def assert_cut_with_one_error(self) -> None:
        """What came is right, then one error, and never a finish reason."""
        assert self.broken == "", self.broken
        assert self.text and self.text == (ALPHABET * (len(self.text) // 26 + 2))[1 : len(self.text) + 1]
        assert len(self.errors) == 1, self.frames[-2:]
        assert "error" in self.frames[-1]
        assert self.finish == []

    def assert_whole(self, tokens: int) -> None:
        assert (self.broken, self.errors, self.finish, self.done) == ("", [], ["length"], True), self.frames[-2:]
        assert self.text == (ALPHABET * (tokens // 26 + 2))[1 : tokens + 1]


class Stream:
    """A streamed completion of the letter "a", read in a thread."""

    def __init__(self, address: str, tokens: int, model: str = "letters") -> None:
        self.answer = Streamed()
        self.begun = threading.Event()
        self._address, self._tokens, self._model = urlsplit(address), tokens, model
        self._connection = http.client.HTTPConnection(self._address.netloc, timeout=90)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_begun(self, timeout_s: float = PATIENCE_S) -> "Stream":
        assert self.begun.wait(timeout_s), f"no first token within {timeout_s} s: {self.answer}"
        return self

    def wait_end(self, timeout_s: float) -> Streamed:
        bound = Bound(timeout_s)
        while self._thread.is_alive():
            assert not bound.over, f"the stream goes on after {bound}"
            self._thread.join(0.2)
        bound.kept()
        return self.answer

    def stop(self) -> None:
        """The client goes; what it has got stays."""
        if self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)

    def _read(self) -> None:
        answer, connection = self.answer, self._connection
        body = {
            "model": self._model,
            "prompt": "a",
            "max_tokens": self._tokens,
            "temperature": 0,
            "stream": True,
        }
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer.status = response.status
            if response.status != 200:
                answer.frames.append(json.loads(response.read()))
                return
            for line in response:
                self._take(line.strip())
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: half a line at the end
            answer.broken = repr(error)
        finally:
            connection.close()

    def _take(self, line: bytes) -> None:
        if not line.startswith(b"data: "):
            return
        if line == b"data: [DONE]":
            self.answer.done = True
            return
        frame = json.loads(line[6:])
        self.answer.frames.append(frame)
        if any(choice["text"] for choice in frame.get("choices", ())):
            self.begun.set()
