"""Which model's tokenizer a request gets, while models come and go."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import pytest
from support.router.jobs import until
from support.router.vocabularies import byte_level, files

from octavo.router.jobs.generation import Dispatcher, Model, RequestError, ServedModel
from octavo.router.tokenizer_pool import model_loader
from octavo.router.tokenizer_pool.model_loader import ModelLoader
from octavo.router.tokenizer_pool.pool import PoolCounts

FILES = files(byte_level())
OLD, NEW = Model("old", FILES), Model("new", FILES)
BROKEN = Model("broken", {**FILES, "tokenizer.json": b"{}"})


def served(model: Model, groups: int = 1, context_length: int = 64) -> ServedModel:
    return ServedModel(model, ("m",), context_length, groups=groups)


class Groups:
    """A Dispatcher that serves what `now` is given, and chooses the last of it."""

    def __init__(self, *models: ServedModel) -> None:
        self.models = models
        self._changed = asyncio.Event()

    def now(self, *models: ServedModel) -> None:
        self.models = models
        self._changed.set()

    async def models_changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def choose(self, digests: Collection[str]) -> ServedModel | None:
        return next((one for one in reversed(self.models) if one.digest in digests and one.groups), None)

    async def model(self, deadline: float) -> ServedModel:
        raise AssertionError("a group serves")


class Pool:
    """A HelperPool without helpers. all: by model."""

    all: ClassVar[dict[str, "Pool"]] = {}

    def __init__(self, model: Model, *_: object) -> None:
        self.warm, self.counts, self.retired = asyncio.Event(), PoolCounts(), False
        Pool.all[model.digest] = self

    async def retire(self) -> None:
        self.retired = True

    async def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def pools(monkeypatch: pytest.MonkeyPatch) -> None:
    Pool.all.clear()
    monkeypatch.setattr(model_loader, "HelperPool", Pool)
    monkeypatch.setattr(model_loader, "LOOK_S", 0.01)


@contextmanager
def following(groups: Groups) -> Iterator[ModelLoader]:
    loader = ModelLoader(cast(Dispatcher, groups))
    task = asyncio.ensure_future(loader.follow())
    try:
        yield loader
    finally:
        task.cancel()


async def digest(loader: ModelLoader) -> str:
    return (await loader.current(0.0)).model.digest


async def test_a_new_model_gets_no_request_before_a_helper_has_loaded_it() -> None:
    groups = Groups(served(OLD))
    with following(groups) as loader:
        assert await digest(loader) == "old", "without another one it gets them at once"
        Pool.all["old"].warm.set()
        groups.now(served(OLD), served(NEW))
        await until(lambda: "new" in Pool.all)
        assert await digest(loader) == "old"
        Pool.all["new"].warm.set()
        assert await digest(loader) == "new"
        assert [one.model.digest for one in loader.loaded] == ["old", "new"]


async def test_a_model_whose_files_cannot_be_used_gets_no_request_while_another_is_served() -> None:
    groups = Groups(served(BROKEN))
    with following(groups) as loader:
        with pytest.raises(RequestError) as refused:
            await loader.current(0.0)
        assert refused.value.code == "model_files_invalid"
        groups.now(served(BROKEN), served(OLD))
        assert await digest(loader) == "old"


async def test_a_model_is_kept_for_a_while_after_its_last_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may only be restarting; and requests that were tokenised for it are still answered."""
    groups = Groups(served(OLD), served(NEW))
    with following(groups) as loader:
        await until(lambda: len(loader.loaded) == 2)
        kept = Pool.all["old"]
        groups.now(served(NEW))
        await until(lambda: len(loader.loaded) == 1)
        await asyncio.sleep(0.1)
        groups.now(served(OLD), served(NEW))
        await until(lambda: len(loader.loaded) == 2)
        assert Pool.all["old"] is kept and not kept.retired
        monkeypatch.setattr(model_loader, "KEPT_S", 0.05)
        groups.now(served(NEW))
        await until(lambda: kept.retired)
        readings: dict[str, Any] = {name: value for name, _, _, value in loader.readings()}
        assert readings["octavo_router_helpers_killed"] == 0


async def test_the_context_is_what_groups_say_now() -> None:
    groups = Groups(served(OLD))
    with following(groups) as loader:
        assert (await loader.current(0.0)).text.context_length == 64
        groups.now(served(OLD, context_length=128))
        loaded = await loader.current(0.0)
        assert (loaded.text.context_length, loaded.model.context_length) == (128, 128)
        assert len(Pool.all) == 1
