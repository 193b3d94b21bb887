"""The models that groups serve, with their text sides loaded: one ModelTokenizer and one helper pool for each."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from octavo.router.constrained.formats import Formats
from octavo.router.jobs.generation import Dispatcher, RequestError, ServedModel
from octavo.router.metrics import MetricReading
from octavo.router.parsers.parser_flags import AUTO, ParserFlags
from octavo.router.text.bodies import BodyKind, Detokenised, EncodedRequest, detokenise, encode, read_quick
from octavo.router.text.tokenizer import ModelTokenizer
from octavo.router.text.tokenizing import Operation, Tokenized
from octavo.router.tokenizer_pool.pool import HelperPool

log = logging.getLogger(__name__)

HELPERS = 2  # so that one looping template leaves another free
LOOK_S = 1.0  # between two looks at what is loaded; a change of the groups is seen at once
KEPT_S = 60.0  # after the last group of a model has gone, which may only be restarting
INLINE_IDS_BYTES = 4_096  # of a message: at most as many ids, decoded in the event loop


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model's text side, and what its groups say of themselves now."""

    model: ServedModel
    text: ModelTokenizer
    pool: HelperPool
    formats: Formats

    async def prepare(self, body_kind: BodyKind, body: bytes) -> EncodedRequest:
        """In the event loop when it is quick, else in a helper. Raises RequestError."""
        request = read_quick(body_kind, body)
        if request is not None:
            return encode(self.text, body_kind, request)
        return await self.pool.prepare(body_kind, body, self.model.context_length)

    async def run(self, operation: Operation, body: bytes) -> Tokenized:
        """Raises RequestError."""
        return await self.pool.run(operation, body, self.model.context_length)

    async def detokenise(self, body: bytes) -> Detokenised:
        """By the rule of `prepare`. Raises RequestError."""
        return detokenise(self.text, body) if len(body) <= INLINE_IDS_BYTES else await self.pool.detokenise(body)


@dataclass(slots=True)
class _TextSide:
    """What is loaded of a model. gone_since: when no group served it any more, in the loop's seconds; None: one
    does."""

    text: ModelTokenizer
    pool: HelperPool
    formats: Formats
    gone_since: float | None = None
    loaded: LoadedModel | None = None  # the last one asked for

    def of(self, served: ServedModel) -> LoadedModel:
        if self.loaded is None or self.loaded.model is not served:
            self.text = self.text.within(served.context_length)
            self.loaded = LoadedModel(served, self.text, self.pool, self.formats)
        return self.loaded


class ModelLoader:
    """Loads each model when a group has delivered its files, and drops it when its groups have gone."""

    def __init__(self, dispatcher: Dispatcher, flags: ParserFlags = AUTO) -> None:
        self._dispatcher = dispatcher
        self._flags = flags
        self._sides: dict[str, _TextSide] = {}  # by the model's digest
        self._broken: dict[str, RequestError] = {}  # what is wrong with a model's files
        self._lock = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._killed = self._died = 0

    @property
    def loaded(self) -> list[LoadedModel]:
        """Of the models that are served, by number of groups."""
        served = self._dispatcher.models if self._sides else ()
        return [self._sides[one.digest].of(one) for one in served if one.digest in self._sides]

    async def current(self, deadline: float) -> LoadedModel:
        """The model for the next request. A new model gets requests once a helper has loaded it, unless no other one is
        served. Waits for the first group's files until `deadline` (monotonic seconds). Raises RequestError."""
        models = self._dispatcher.models
        if len(models) == 1 and (side := self._sides.get(models[0].digest)) is not None:
            return side.of(models[0])
        warm = [digest for digest, side in self._sides.items() if side.pool.warm.is_set()]
        chosen = self._dispatcher.choose(warm) or self._dispatcher.choose(self._sides)
        if chosen is not None:
            return self._sides[chosen.digest].of(chosen)
        served = models or (await self._dispatcher.model(deadline),)
        refusals: list[RequestError] = []
        for one in served:
            try:
                async with self._lock:
                    return (await self._load(one)).of(one)
            except RequestError as refusal:
                refusals.append(refusal)
        raise refusals[0]

    async def follow(self) -> None:
        """Load models as soon as groups serve them, so that no request waits for that."""
        while True:
            try:
                await self._review()
            except Exception:  # a bug of ours: each request tries to load its model again
                log.exception("the models could not be loaded")
            try:
                async with asyncio.timeout(LOOK_S if self._sides else None):
                    await self._dispatcher.models_changed()
            except TimeoutError:
                pass

    async def close(self) -> None:
        for side in self._sides.values():
            await side.pool.close()
        for task in self._retiring:
            task.cancel()

    def readings(self) -> Iterator[MetricReading]:
        counts = [side.pool.counts for side in self._sides.values()]
        killed = self._killed + sum(one.killed for one in counts)
        died = self._died + sum(one.died for one in counts)
        yield "octavo_router_helpers_killed", "Helper processes killed at their time limit", True, killed
        yield "octavo_router_helpers_died", "Helper processes that ended by themselves", True, died
        warm = sum(side.pool.warm.is_set() for side in self._sides.values())
        yield "octavo_router_loaded_models", "Models that a process can tokenise for, in sum", False, warm

    async def _review(self) -> None:
        """Load what is new, drop what has gone. Model files that cannot be used are in the log."""
        served, now = self._dispatcher.models, asyncio.get_running_loop().time()
        present = {one.digest for one in served}
        for digest, side in list(self._sides.items()):
            if digest in present:
                side.gone_since = None
            elif side.gone_since is None:
                side.gone_since = now
            elif now - side.gone_since >= KEPT_S:
                self._retire(digest)
        self._broken = {digest: why for digest, why in self._broken.items() if digest in present}
        for one in served:
            if one.digest not in self._broken:
                async with self._lock:
                    try:
                        await self._load(one)
                    except RequestError as error:
                        log.info("model %s gets no requests: %s", one.digest, error.message)

    async def _load(self, served: ServedModel) -> _TextSide:
        model = served.model
        if model.digest in self._sides:
            return self._sides[model.digest]
        if model.digest in self._broken:
            raise self._broken[model.digest]
        try:
            text = await asyncio.to_thread(ModelTokenizer, model.files, served.context_length)
        except Exception as error:  # ModelFilesInvalid, or whatever a file can do to a parser
            log.error("model %s (%s) cannot be used: %s", served.name, model.digest, error)
            refusal = RequestError(
                500, "server_error", "model_files_invalid", f"the model's files are unusable: {error}"
            )
            self._broken[model.digest] = refusal
            raise refusal from error
        formats = Formats.of(text, self._flags)
        side = self._sides[model.digest] = _TextSide(text, HelperPool(model, HELPERS, self._flags), formats)
        _log(served, side)
        return side

    def _retire(self, digest: str) -> None:
        """What still waits in its pool is finished there."""
        pool = self._sides.pop(digest).pool
        log.info("model %s: dropped, no group has served it for %.0f s", digest, KEPT_S)
        self._killed += pool.counts.killed
        self._died += pool.counts.died
        task = asyncio.create_task(pool.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def _log(served: ServedModel, side: _TextSide) -> None:
    name, text, formats = served.name, side.text, side.formats
    log.info("model %s (%s): context %d, default sampling %s",
             name, served.digest, served.context_length, text.sampling.changes)  # fmt: skip
    log.info("model %s: tool calls %s, reasoning %s", name, formats.tools, formats.reasoning)
    if left_out := set(text.sampling.features) - served.features:
        names = ", ".join(sorted(left_out))
        log.warning("model %s: the device cannot do its own default %s: left out", name, names)
