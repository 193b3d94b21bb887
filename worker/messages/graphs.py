"""Which CUDA graph a step replays, and which to capture next. No torch: the leader decides, every rank obeys.

A graph has a fixed number of rows and tokens; a step runs in the smallest one that holds it, the rest is padding.

    decode-64       64 rows of one token each
    mixed-512x64    up to 64 rows with 512 tokens together: decoding ones first, then chunks of prompts

Capturing is a step without rows that names its graph. It runs between others, small graphs first; until a graph is
there, and for steps larger than any, the kernels are launched one by one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from octavo.worker.messages.step import EAGER, Step

MIXED_TOKENS = (128, 256, 512, 1024)
MIXED_ROWS = (16, 64, 256, 1024)


class Graph(NamedTuple):
    """rows and tokens that it holds; equal for a graph of decoding rows."""

    rows: int
    tokens: int

    @property
    def name(self) -> str:
        return f"decode-{self.rows}" if self.rows == self.tokens else f"mixed-{self.tokens}x{self.rows}"


def parse(name: str) -> Graph:
    """The reverse of Graph.name. Raises ValueError for anything else."""
    kind, _, sizes = name.partition("-")
    numbers = [int(size) for size in sizes.split("x")]
    if kind == "decode" and len(numbers) == 1:
        return Graph(numbers[0], numbers[0])
    if kind == "mixed" and len(numbers) == 2:
        return Graph(numbers[1], numbers[0])
    raise ValueError(f"graph {name!r}: not decode-ROWS or mixed-TOKENSxROWS")


def wanted(max_requests: int, max_batch_tokens: int) -> list[Graph]:
    """In the order of capture: what serves first requests soonest, then what makes many of them fast."""
    most = min(max_requests, max_batch_tokens)
    rows = [size for size in _decode_rows() if size < most] + [most]
    decode = [Graph(size, size) for size in rows]
    mixed = [
        Graph(size, tokens)
        for tokens in MIXED_TOKENS
        if tokens <= max_batch_tokens
        for size in _mixed_rows(min(max_requests, tokens // 2))
    ]
    return sorted(decode) + sorted(mixed, key=lambda graph: (graph.tokens, graph.rows))


def mixed_sizes(names: Iterable[str]) -> tuple[int, ...]:
    """Tokens that the graphs for steps with chunks have, rising; one of them has half as many rows, if so many run."""
    return tuple(sorted({graph.tokens for graph in map(parse, names) if graph.tokens > graph.rows}))


def _decode_rows() -> list[int]:
    """Rows are padded by at most an eighth or so: their keys and values are not read, but their products are made."""
    return [1, 2, 4, 8, 12, 16, *range(24, 64, 8), *range(64, 256, 16), *range(256, 1025, 32)]


def _mixed_rows(most: int) -> list[int]:
    return [size for size in MIXED_ROWS if size < most] + [most]


class GraphBook:
    """The graphs of one incarnation: the ones that every rank has, and the ones still to be captured."""

    def __init__(self, names: Iterable[str]) -> None:
        self._missing = [parse(name) for name in names]
        self._missing.reverse()
        self._capturing: dict[int, Graph] = {}  # by step
        self._decode: list[Graph] = []
        self._mixed: list[Graph] = []

    @property
    def complete(self) -> bool:
        """Whether no capture is left to be asked for."""
        return not self._missing

    def capture(self, number: int) -> str:
        """The graph that step `number`, which has no rows, shall capture; only when not complete."""
        graph = self._missing.pop()
        self._capturing[number] = graph
        return graph.name

    def returned(self, number: int) -> bool:
        """The result of step `number` is here: what it captured may be named from now on. True for the last graph."""
        graph = self._capturing.pop(number, None)
        if graph is None:
            return False
        kind = self._decode if graph.rows == graph.tokens else self._mixed
        kind.append(graph)
        kind.sort(key=lambda one: (one.tokens, one.rows))
        return self.complete and not self._capturing

    def pick(self, step: Step) -> str:
        """The graph that `step` replays; EAGER when none holds it."""
        rows, tokens = len(step.forward.slots), step.forward.tokens
        graph = _smallest(self._decode if rows == tokens else self._mixed, rows, tokens)
        return EAGER if graph is None else graph.name


def _smallest(graphs: Sequence[Graph], rows: int, tokens: int) -> Graph | None:
    first = bisect_left(graphs, tokens, key=lambda graph: graph.tokens)
    return next((graph for graph in graphs[first:] if graph.rows >= rows), None)
