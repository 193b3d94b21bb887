"""The groups as this router sees them now: one Upstream per address, and the model they agree on.

Groups of one revision have one model. While a service changes its model, groups of both exist: the old one stays
current as long as one of its groups takes requests, so that jobs tokenised for it can still go; then the new one is
adopted. A group of another model than the current one carries nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from octavo.proto.v1 import engine_pb2
from octavo.router.background import background
from octavo.router.dispatch.leader_stream import LeaderStream, StreamListener
from octavo.router.dispatch.tls import Dial
from octavo.router.dispatch.upstream import Upstream
from octavo.router.internal_errors import InternalErrors
from octavo.router.jobs.generation import Model

log = logging.getLogger(__name__)

RESTART_S = 1.0  # after which a keeper that has ended, which is a bug, is started again


class Fleet:
    """Addresses in, usable streams out."""

    def __init__(
        self, dial: Dial, hello: engine_pb2.FromRouter, listener: StreamListener, errors: InternalErrors
    ) -> None:
        self.synced = False
        self.current: Model | None = None
        self._dial = dial
        self._hello = hello
        self._listener = listener
        self._errors = errors
        self._upstreams: dict[str, Upstream] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted: frozenset[str] = frozenset()
        self._models: dict[str, Model] = {}
        self._usable: list[LeaderStream] = []

    @property
    def usable(self) -> list[LeaderStream]:
        """Streams that take new requests for the current model."""
        return self._usable

    @property
    def upstreams(self) -> Iterable[Upstream]:
        return self._upstreams.values()

    @property
    def listed(self) -> int:
        return len(self._wanted)

    @property
    def missing(self) -> dict[str, float]:
        """Listed groups without a stream: seconds of that, by address."""
        all_s = ((address, self._upstreams[address].missing_s) for address in self._wanted)
        return {address: seconds for address, seconds in all_s if seconds is not None}

    def retarget(self, addresses: Iterable[str]) -> None:
        """Set the list of groups. A removed group finishes its requests and gets no new ones."""
        self.synced = True
        self._wanted = frozenset(addresses)
        for address in self._wanted - self._upstreams.keys():
            upstream = Upstream(address, self._dial, self._hello, self._listener, self._errors)
            self._upstreams[address] = upstream
            self._keep(upstream)
        for address, upstream in list(self._upstreams.items()):
            if upstream.stream is not None:
                upstream.stream.retired = address not in self._wanted
        self.review()

    def opened(self, stream: LeaderStream, model: Model) -> None:
        stream.retired = stream.address not in self._wanted
        self._models[model.fingerprint] = model
        self.review()

    def review(self) -> None:
        """Close streams of removed addresses without requests, elect the model, and list the streams that take
        requests."""
        for address in [a for a in self._upstreams if a not in self._wanted]:
            stream = self._upstreams[address].stream
            if stream is None or not stream.in_flight_jobs:
                self._close(address)
        streams = [u.stream for u in self._upstreams.values() if u.stream is not None]
        accepting = [stream for stream in streams if stream.accepts_requests]
        self._elect(accepting)
        current = self.current.fingerprint if self.current else None
        self._usable = [stream for stream in accepting if stream.fingerprint == current]
        kept = {current, *(stream.fingerprint for stream in streams)}
        for fingerprint in self._models.keys() - kept:
            del self._models[fingerprint]

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._wanted = frozenset()
        for address in list(self._upstreams):
            self._close(address)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _elect(self, accepting: list[LeaderStream]) -> None:
        votes = Counter(stream.fingerprint for stream in accepting)
        current = self.current.fingerprint if self.current else None
        if not votes or current in votes:
            self._warn_of_mismatches(accepting, current)
            return
        winner = votes.most_common(1)[0][0]
        log.info("model %s is now current (was %s)", winner, current)
        self.current = self._models[winner]
        self._warn_of_mismatches(accepting, winner)

    def _warn_of_mismatches(self, accepting: list[LeaderStream], current: str | None) -> None:
        revisions = {stream.revision for stream in accepting if stream.fingerprint == current}
        for stream in accepting:
            if stream.fingerprint != current and stream.revision in revisions:
                log.error(
                    "group %s: its model %s differs from %s of the same revision %s; it gets no requests",
                    stream.address, stream.fingerprint, current, stream.revision,
                )  # fmt: skip

    def _keep(self, upstream: Upstream) -> None:
        """Start its keeper, and start it again should it end by itself."""
        address = upstream.address
        task = self._tasks[address] = background(upstream.run(self._models.get), f"stream to {address}")

        def is_missed() -> bool:
            return self._tasks.get(address) is task

        def start_again() -> None:
            if is_missed():
                log.error("group %s: nothing keeps its stream; that is started again", address)
                self._keep(upstream)

        def ended(_: "asyncio.Task[None]") -> None:
            if is_missed():
                task.get_loop().call_later(RESTART_S, start_again)

        task.add_done_callback(ended)

    def _close(self, address: str) -> None:
        del self._upstreams[address]
        self._tasks.pop(address).cancel()
