"""What answers are made of in tests of them: ids that are letters, and a client's connection."""

import json
from collections.abc import Sequence
from typing import Any


class Letters:
    """A Detokeniser whose ids are code points."""

    def push(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def flush(self) -> str:
        return ""


class Pipe:
    """A transport whose client reads on request."""

    def __init__(self) -> None:
        self.data = b""
        self.unread = 0
        self.aborted = False
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")  # as uvloop does
        self.data += data

    def abort(self) -> None:
        self.aborted = True

    @property
    def events(self) -> list[dict[str, Any]]:  # Any: JSON
        lines = [line for line in self.data.split(b"\n") if line.startswith(b"data: {")]
        return [json.loads(line.removeprefix(b"data: ")) for line in lines]
