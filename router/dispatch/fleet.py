"""The groups as this router sees them now: one Upstream per address, and the models that they serve.

While a service changes its model, groups of both take requests: each takes what was tokenised for its model. Groups of
one revision must have one model: a group that differs from the others of its revision, because its files were changed
in place, carries nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from octavo.proto.v1 import engine_pb2
from octavo.router.background import background
from octavo.router.dispatch.leader_stream import LeaderStream, StreamListener
from octavo.router.dispatch.tls import Dial
from octavo.router.dispatch.upstream import Upstream
from octavo.router.internal_errors import InternalErrors
from octavo.router.jobs.generation import Model, ServedModel

log = logging.getLogger(__name__)

RESTART_S = 1.0  # after which a keeper that has ended, which is a bug, is started again


class Fleet:
    """Addresses in, usable streams out. served: the models of the usable streams, by number of groups; without any, the
    models of the last ones. mismatched: groups that carry nothing because their model is not that of their revision.
    """

    def __init__(
        self, dial: Dial, hello: engine_pb2.FromRouter, listener: StreamListener, errors: InternalErrors
    ) -> None:
        self.synced = False
        self.served: tuple[ServedModel, ...] = ()
        self.served_changed = asyncio.Event()
        self.mismatched: frozenset[str] = frozenset()
        self._dial = dial
        self._hello = hello
        self._listener = listener
        self._errors = errors
        self._upstreams: dict[str, Upstream] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted: frozenset[str] = frozenset()
        self._models: dict[str, Model] = {}
        self._of_revision: dict[str, str] = {}  # the model's digest, while groups of it take requests
        self._usable: list[LeaderStream] = []
        self._usable_of: dict[str, list[LeaderStream]] = {}

    @property
    def usable(self) -> list[LeaderStream]:
        """Streams that take new requests."""
        return self._usable

    def usable_of(self, digest: str) -> Sequence[LeaderStream]:
        """The usable streams of a model."""
        return self._usable_of.get(digest, ())

    @property
    def upstreams(self) -> Iterable[Upstream]:
        return self._upstreams.values()

    @property
    def asleep(self) -> int:
        """Groups that have given their memory back: they have no credit until they are woken."""
        return sum(stream.load.asleep for stream in self._usable)

    @property
    def listed(self) -> int:
        return len(self._wanted)

    @property
    def missing(self) -> dict[str, float]:
        """Listed groups without a stream: seconds of that, by address."""
        all_s = ((address, self._upstreams[address].missing_s) for address in self._wanted)
        return {address: seconds for address, seconds in all_s if seconds is not None}

    @property
    def skews(self) -> dict[str, str]:
        """Of listed groups whose release does not work together with this one: why, by address."""
        return {one: self._upstreams[one].skew for one in self._wanted if self._upstreams[one].skew}

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
        self._models[model.digest] = model
        self.review()

    def review(self) -> None:
        """Close streams of removed addresses without requests, and list the streams that take requests and their
        models."""
        for address in [a for a in self._upstreams if a not in self._wanted]:
            stream = self._upstreams[address].stream
            if stream is None or not stream.in_flight_jobs:
                self._close(address)
        streams = [u.stream for u in self._upstreams.values() if u.stream is not None]
        accepting = [stream for stream in streams if stream.accepts_requests]
        self._agree(accepting)
        self._usable = [stream for stream in accepting if stream.digest == self._of_revision[stream.revision]]
        self._usable_of = {}
        for stream in self._usable:
            self._usable_of.setdefault(stream.digest, []).append(stream)
        served = self._served()
        if served != self.served:
            self.served = served
            self.served_changed.set()
        kept = {one.digest for one in served} | {stream.digest for stream in streams}
        self._models = {digest: model for digest, model in self._models.items() if digest in kept}

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._wanted = frozenset()
        for address in list(self._upstreams):
            self._close(address)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _served(self) -> tuple[ServedModel, ...]:
        if not self._usable:
            return tuple(replace(one, groups=0) for one in self.served)
        served = [self._as_served(digest, streams) for digest, streams in self._usable_of.items()]
        return tuple(sorted(served, key=lambda one: one.groups, reverse=True))

    def _as_served(self, digest: str, streams: Sequence[LeaderStream]) -> ServedModel:
        names = Counter(stream.served_name for stream in streams)
        return ServedModel(
            model=self._models[digest],
            names=tuple(name for name, _ in names.most_common()),
            context_length=max(stream.context_length for stream in streams),
            features=frozenset[str]().union(*(stream.features for stream in streams)),
            groups=len(streams),
        )

    def _agree(self, accepting: list[LeaderStream]) -> None:
        """Choose each revision's model: the one it has while a group of it takes requests, else that of most."""
        votes: dict[str, Counter[str]] = {}
        for stream in accepting:
            votes.setdefault(stream.revision, Counter())[stream.digest] += 1
        agreed: dict[str, str] = {}
        for revision, counts in votes.items():
            known = self._of_revision.get(revision, "")
            agreed[revision] = known if known in counts else counts.most_common(1)[0][0]
        self._of_revision = agreed
        differing = [stream for stream in accepting if stream.digest != agreed[stream.revision]]
        for stream in differing:
            if stream.address not in self.mismatched:
                log.error(
                    "group %s: its model %s differs from %s of the same revision %s; it gets no requests: give changed "
                    "files another URI",
                    stream.address, stream.digest, agreed[stream.revision], stream.revision or "(none)",
                )  # fmt: skip
        self.mismatched = frozenset(stream.address for stream in differing)

    def _keep(self, upstream: Upstream) -> None:
        """Start its keeper, and start it again should it end by itself."""
        address = upstream.address
        task = self._tasks[address] = background(upstream.run(self._known), f"stream to {address}")

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

    def _known(self, digest: str) -> Model | None:
        return self._models.get(digest)

    def _close(self, address: str) -> None:
        del self._upstreams[address]
        self._tasks.pop(address).cancel()
