"""While a service changes its model, groups of both carry requests, each tokenised for the group that it goes to."""

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.patience import PATIENCE_S, Bound
from support.router.fake_leader import FakeLeader, Script, serving, start
from support.router.grpc_calls import calling, message_of
from support.router.jobs import until
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import SPECIALS, byte_level, files, write

TEXT = "The quick brown fox"
PROMPT = {"model": "m", "prompt": TEXT, "max_tokens": 3}
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 3}
# Every id of one is another token's of the other.
TOKENIZERS = {"old": byte_level(), "new": byte_level(specials=["<|pad|>", *SPECIALS])}
GROUPS, SLOTS, LOAD = 4, 4, 0.7


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="octavo-") as folder:  # short: a socket's path is bounded
        yield Path(folder)


def script(folder: Path, digest: str, **fields: object) -> Script:
    """Of a group of the old or of the new model. fields: of Script."""
    model = write(folder / digest, files(TOKENIZERS[digest]))
    made: dict[str, object] = {"digest": digest, "revision": digest, "tokenizer": model, "ids": (300, 301, 302)}
    return Script(**(made | {"served_name": "m"} | fields))  # type: ignore[arg-type]


def is_own(leader: FakeLeader) -> bool:
    """Whether all that it got was made by its own model's tokenizer."""
    tokenizer = TOKENIZERS[leader.script.digest]
    prompts = [array("I", submit.prompt).tolist() for submit in leader.submits]
    return all(TEXT in tokenizer.decode(ids, skip_special_tokens=False) for ids in prompts)


async def loaded(router: RunningRouter, models: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await router.sample("octavo_router_loaded_models") != models:
            await asyncio.sleep(0.05)


async def waiting(router: RunningRouter, requests: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await router.sample("octavo_router_queue_requests") != requests:
            await asyncio.sleep(0.05)


class Clients:
    """Ask all the time, a request after another; each third one for a stream. answered: of them; failed: what was no
    whole answer."""

    def __init__(self, router: RunningRouter, count: int) -> None:
        self.answered = 0
        self.failed: list[object] = []
        self._router = router
        self._tasks = [asyncio.ensure_future(self._ask(index)) for index in range(count)]

    async def more(self, requests: int) -> None:
        """Until so many more have been answered."""
        target = self.answered + requests
        await until(lambda: self.answered >= target or bool(self.failed))
        assert self.failed == []

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, index: int) -> None:
        while True:
            try:
                if index % 3 == 0:
                    events = await self._router.events("/v1/chat/completions", CHAT | {"max_tokens": 10})
                    good = events[-1] == "[DONE]" and "error" not in json.loads(events[-2])
                else:
                    status, _ = await self._router.post("/v1/completions", PROMPT | {"max_tokens": 10})
                    good = status == 200
            except Exception as error:
                self.failed.append(error)
                continue
            self.answered += 1
            if not good:
                self.failed.append("an answer that is not whole")


@asynccontextmanager
async def asking(router: RunningRouter, count: int) -> AsyncIterator[Clients]:
    clients = Clients(router, count)
    try:
        yield clients
    finally:
        await clients.stop()


async def each_gets(
    leaders: Mapping[str, FakeLeader], addresses: list[str], clients: Clients, average: int
) -> dict[str, int]:
    """Until every group has got a request and all of them as many as `average` of each; how many each has got."""
    before = {address: len(leaders[address].submits) for address in addresses}

    def got() -> dict[str, int]:
        return {address: len(leaders[address].submits) - count for address, count in before.items()}

    await until(
        lambda: bool(clients.failed) or (min(got().values()) > 0 and sum(got().values()) >= average * len(got()))
    )
    assert clients.failed == []
    return got()


async def test_requests_are_shared_by_the_number_of_groups_and_tokenised_for_them(folder: Path) -> None:
    addresses = [f"unix:{folder}/{index}" for index in range(4)]
    old, new = script(folder, "old"), script(folder, "new")
    async with (
        serving(old, addresses[0]) as one,
        serving(old, addresses[1]) as two,
        serving(old, addresses[2]) as three,
    ):
        async with serving(new, addresses[3]) as other, routing(addresses) as router:
            await loaded(router, 2)
            leaders = one, two, three, other
            before = [len(leader.submits) for leader in leaders]
            for index in range(40):
                path, body = ("/v1/completions", PROMPT) if index % 2 else ("/v1/chat/completions", CHAT)
                status, _ = await router.post(path, body)
                assert status == 200
            got = [len(leader.submits) - count for leader, count in zip(leaders, before, strict=True)]
            assert sum(got[:3]) == 30 and got[3] == 10
            assert all(map(is_own, leaders))


async def test_a_change_of_all_groups_under_load_fails_no_request_and_leaves_no_group_idle(folder: Path) -> None:
    olds = [f"unix:{folder}/old{index}" for index in range(GROUPS)]
    news = [f"unix:{folder}/new{index}" for index in range(GROUPS)]
    fields = {"interval_s": 0.02, "slots": SLOTS}
    leaders = {address: FakeLeader(script(folder, "old", **fields)) for address in olds}
    leaders |= {address: FakeLeader(script(folder, "new", **fields)) for address in news}
    servers = {address: await start(leaders[address], address) for address in olds}
    try:
        async with routing([*olds, *news]) as router, asking(router, int(GROUPS * SLOTS * LOAD)) as clients:
            await clients.more(30)
            for step, (old, new) in enumerate(zip(olds, news, strict=True)):
                servers[new] = await start(leaders[new], new)
                await until(lambda new=new: bool(leaders[new].submits))  # type: ignore[misc]
                leaders[old].drain()
                await until(lambda old=old: not leaders[old].under_way)  # type: ignore[misc]
                await servers.pop(old).stop(1)
                await each_gets(leaders, list(servers), clients, 5)
                got = await each_gets(leaders, list(servers), clients, 60 // len(servers))
                share, fair = sum(got[address] for address in news[: step + 1]) / sum(got.values()), (step + 1) / GROUPS
                assert fair / 2 <= share <= (fair + 1) / 2, f"after step {step}: {got}"
        assert clients.failed == []
        assert all(map(is_own, leaders.values()))
    finally:
        for server in servers.values():
            await server.stop(0)


async def test_what_waits_for_a_model_that_has_gone_is_tokenised_for_the_other(folder: Path) -> None:
    gone, here = f"unix:{folder}/a", f"unix:{folder}/b"
    async with serving(script(folder, "old", credit=0), gone) as old, routing([gone, here]) as router:
        async with calling(router.grpc) as stub:
            whole = asyncio.ensure_future(router.post("/v1/chat/completions", CHAT | {"n": 2}))
            streamed = asyncio.ensure_future(router.events("/v1/completions", PROMPT))
            generated = asyncio.ensure_future(stub.Generate(message_of(PROMPT)))
            await waiting(router, 4)
            async with serving(script(folder, "new"), here) as new:
                await loaded(router, 2)
                assert not (whole.done() or streamed.done() or generated.done())
                old.drain()
                status, answer = await whole
                assert (status, len(answer["choices"])) == (200, 2)
                assert answer["usage"]["prompt_tokens"] == len(new.submits[0].prompt) // 4 or len(new.submits) == 4
                assert (await streamed)[-1] == "[DONE]"
                assert len((await generated).outputs) == 1
                assert old.submits == [] and len(new.submits) == 4 and is_own(new)
                assert await router.sample("octavo_router_retokenised_requests_total") == 3


async def test_a_longer_context_holds_within_five_seconds(folder: Path) -> None:
    old, new = f"unix:{folder}/a", f"unix:{folder}/b"
    long = {"model": "m", "prompt": [5] * 3000, "max_tokens": 1}
    async with serving(script(folder, "old", context_length=2048), old) as short, routing([old, new]) as router:
        status, refused = await router.post("/v1/completions", long)
        assert (status, refused["error"]["code"]) == (400, "context_length_exceeded")
        changed = script(folder, "old", context_length=4096, revision="second")
        async with serving(changed, new) as larger:
            bound = Bound(5)
            while (await router.post("/v1/completions", long))[0] != 200:
                assert not bound.over, bound
            bound.kept()
            for _ in range(4):  # the smaller group is there still, and gets none of them
                assert (await router.post("/v1/completions", long))[0] == 200
            assert short.submits == [] and len(larger.submits) == 5
            status, made = await router.post("/tokenize", {"prompt": "x"})
            assert (status, made["max_model_len"]) == (200, 4096)
            async with router.session.get(f"{router.url}/v1/models") as answer:
                assert [card["max_model_len"] for card in (await answer.json())["data"]] == [4096]


async def test_a_request_may_name_either_model(folder: Path) -> None:
    """Where groups, not the router, name the model: a change of the name refuses no client while both serve."""
    old, new = f"unix:{folder}/a", f"unix:{folder}/b"
    async with serving(script(folder, "old", served_name="first"), old) as one, routing([old, new]) as router:
        async with serving(script(folder, "new", served_name="second"), new) as other:
            await loaded(router, 2)
            for name in ("first", "second") * 3:
                status, answer = await router.post("/v1/completions", PROMPT | {"model": name})
                assert (status, answer["model"]) == (200, name)
            assert (len(one.submits), len(other.submits)) == (3, 3)
            assert is_own(one) and is_own(other)
            for name in ("first", "second") * 3:
                status, answer = await router.post("/tokenize", {"model": name, "prompt": TEXT})
                assert status == 200, answer
                body = {"model": name, "tokens": answer["tokens"]}
                assert (await router.post("/detokenize", body))[1]["prompt"] == TEXT
            async with router.session.get(f"{router.url}/v1/models") as answer:
                assert {card["id"] for card in (await answer.json())["data"]} == {"first", "second"}
            assert (await router.post("/v1/completions", PROMPT | {"model": "third"}))[0] == 404


async def test_what_one_model_refuses_is_served_by_the_one_that_is_named(folder: Path) -> None:
    """Whichever model's turn it is: its refusal says nothing of another one."""
    old, new = f"unix:{folder}/a", f"unix:{folder}/b"
    short = script(folder, "old", served_name="first", context_length=4)
    async with serving(short, old), routing([old, new]) as router:
        async with serving(script(folder, "new", served_name="second"), new):
            await loaded(router, 2)
            for _ in range(4):
                status, answer = await router.post("/v1/completions", PROMPT | {"model": "second"})
                assert (status, answer["model"]) == (200, "second")
                status, answer = await router.post("/v1/completions", PROMPT | {"model": "first"})
                assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
