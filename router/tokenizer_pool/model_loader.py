"""The model that groups serve now, with its text side loaded: one ModelTokenizer and one helper pool a fingerprint."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from octavo.router.constrained.formats import Formats
from octavo.router.jobs.generation import Dispatcher, Model, RequestError
from octavo.router.metrics import MetricReading
from octavo.router.parsers.parser_flags import AUTO, ParserFlags
from octavo.router.text.bodies import BodyKind, Detokenised, EncodedRequest, detokenise, encode, read_quick
from octavo.router.text.tokenizer import ModelTokenizer
from octavo.router.tokenizer_pool.pool import HelperPool

log = logging.getLogger(__name__)

HELPERS = 2  # so that one looping template leaves another free
RETRY_S = 1.0
INLINE_IDS_BYTES = 4_096  # of a message: at most as many ids, decoded in the event loop


@dataclass(frozen=True, slots=True)
class LoadedModel:
    model: Model
    text: ModelTokenizer
    pool: HelperPool
    formats: Formats

    async def prepare(self, body_kind: BodyKind, body: bytes) -> EncodedRequest:
        """In the event loop when it is quick, else in a helper. Raises RequestError."""
        request = read_quick(body_kind, body)
        if request is not None:
            return encode(self.text, body_kind, request)
        return await self.pool.prepare(body_kind, body)

    async def detokenise(self, body: bytes) -> Detokenised:
        """By the same rule. Raises RequestError."""
        return detokenise(self.text, body) if len(body) <= INLINE_IDS_BYTES else await self.pool.detokenise(body)


class ModelLoader:
    """Loads a model's files when a group has delivered them, and again when the groups change to another model."""

    def __init__(self, dispatcher: Dispatcher, flags: ParserFlags = AUTO) -> None:
        self._dispatcher = dispatcher
        self._flags = flags
        self._loaded: LoadedModel | None = None
        self._broken: tuple[str, RequestError] | None = None  # fingerprint, what is wrong with its files
        self._lock = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._killed = self._died = 0

    @property
    def loaded(self) -> LoadedModel | None:
        return self._loaded

    async def current(self, deadline: float) -> LoadedModel:
        """Waits for a group's files until `deadline` (monotonic seconds). Raises RequestError."""
        model = self._dispatcher.files() or await self._dispatcher.model(deadline)
        loaded = self._loaded
        if loaded is not None and loaded.model.fingerprint == model.fingerprint:
            return loaded
        async with self._lock:
            return await self._load(model)

    async def follow(self) -> None:
        """Load the first model as soon as it is there, so that no request waits for it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self.current(loop.time() + 3600)
                return
            except RequestError as error:
                log.info("no model yet: %s", error.message)
            except Exception:  # a bug of ours: each request tries to load the model again
                log.exception("the model could not be loaded")
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        if self._loaded is not None:
            await self._loaded.pool.close()
        for task in self._retiring:
            task.cancel()

    def readings(self) -> Iterator[MetricReading]:
        counts = self._loaded.pool.counts if self._loaded is not None else None
        killed = self._killed + (counts.killed if counts else 0)
        died = self._died + (counts.died if counts else 0)
        yield "octavo_router_helpers_killed", "Helper processes killed at their time limit", True, killed
        yield "octavo_router_helpers_died", "Helper processes that ended by themselves", True, died

    async def _load(self, model: Model) -> LoadedModel:
        if self._loaded is not None and self._loaded.model.fingerprint == model.fingerprint:
            return self._loaded
        if self._broken is not None and self._broken[0] == model.fingerprint:
            raise self._broken[1]
        try:
            text = await asyncio.to_thread(ModelTokenizer, model.files, model.context_length)
        except Exception as error:  # ModelFilesInvalid, or whatever a file can do to a parser
            log.error("model %s (%s) cannot be used: %s", model.name, model.fingerprint, error)
            refusal = RequestError(
                500, "server_error", "model_files_invalid", f"the model's files are unusable: {error}"
            )
            self._broken = (model.fingerprint, refusal)
            raise refusal from error
        self._retire()
        formats = Formats.of(text, self._flags)
        self._loaded = LoadedModel(model, text, HelperPool(model, HELPERS, self._flags), formats)
        log.info("model %s: context %d, default sampling %s", model.name, model.context_length, text.sampling)
        log.info("model %s: tool calls %s, reasoning %s", model.name, formats.tools, formats.reasoning)
        if left_out := set(text.sampling.features) - model.features:
            names = ", ".join(sorted(left_out))
            log.warning("model %s: the device cannot do its own default %s: left out", model.name, names)
        return self._loaded

    def _retire(self) -> None:
        """What still waits in the old pool is finished there."""
        if self._loaded is None:
            return
        pool = self._loaded.pool
        self._killed += pool.counts.killed
        self._died += pool.counts.died
        task = asyncio.create_task(pool.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
