"""The official client asks for what few ask, of real processes, and gets what transformers would give."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from support.models.checkpoints import BOS, EOS, random_checkpoint, successor_checkpoint
from support.models.oracle import Oracle
from support.router.routers import RunningRouter, routing
from support.worker.worker import WorkerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOLERANCE = 1e-4
PROMPT = list(b"The quick brown fox jumps over it.")


@dataclass
class Service:
    router: RunningRouter
    worker: WorkerProcess
    client: openai.AsyncOpenAI
    folder: Path

    async def complete(self, **fields: Any) -> Any:
        extra = {name: fields.pop(name) for name in list(fields) if name in EXTRA}
        defaults = {"model": "m", "prompt": "a", "temperature": 0, "max_tokens": 4}
        return await self.client.completions.create(**defaults | fields, extra_body=extra)

    async def chat(self, **fields: Any) -> Any:
        extra = {name: fields.pop(name) for name in list(fields) if name in EXTRA}
        defaults: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
        return await self.client.chat.completions.create(**{"temperature": 0} | defaults | fields, extra_body=extra)

    async def refused(self, **fields: Any) -> str | None:
        with pytest.raises(openai.BadRequestError) as caught:
            await self.complete(**fields)
        return caught.value.param


EXTRA = frozenset(
    "min_p repetition_penalty allowed_token_ids bad_words min_tokens prompt_logprobs include_stop_str_in_output top_k"
    " skip_special_tokens return_token_ids truncate_prompt_tokens cache_salt stop_token_ids ignore_eos".split()
)


async def served(folder: Path) -> AsyncIterator[Service]:
    worker = WorkerProcess(folder, "--served-name", "m").start()
    try:
        async with routing([worker.addresses["serve"]], "--served-name", "m") as router:
            client = openai.AsyncOpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0)
            yield Service(router, worker, client, folder)
    finally:
        worker.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def letters(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """After each letter comes the next one; after "#" two halves of a character, words, a special token and EOS.

    "Z" ends a text as well, and comes after "%".
    """
    script = ["#", b"\xc3", b"\xa9", "END", 258, "there", EOS, "%", "Z", "~"]
    folder = tmp_path_factory.mktemp("model") / "m"
    async for service in served(successor_checkpoint(folder, script, eos=[EOS, ord("Z")])):
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def noise(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Random weights, for numbers that mean something."""
    async for service in served(random_checkpoint(tmp_path_factory.mktemp("model") / "m", seed=1)):
        yield service


@pytest.fixture(scope="module")
def oracle(noise: Service) -> Oracle:
    return Oracle(noise.folder)


async def test_a_completions_log_probabilities_agree_with_transformers(noise: Service, oracle: Oracle) -> None:
    answer = await noise.complete(prompt=PROMPT, logprobs=5, echo=True, return_token_ids=True, max_tokens=8)
    choice = answer.choices[0]
    ids = choice.token_ids
    assert len(ids) == answer.usage.completion_tokens == 8 and choice.prompt_token_ids == PROMPT
    wanted = oracle.logits([*PROMPT, *ids]).log_softmax(-1)
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.text_offset) == len(PROMPT) + 8
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    for at, token in enumerate([*PROMPT, *ids][1:]):
        assert abs(logprobs.token_logprobs[at + 1] - float(wanted[at, token])) < TOLERANCE
        best = sorted(logprobs.top_logprobs[at + 1].values(), reverse=True)[:5]
        assert max(abs(a - b) for a, b in zip(best, wanted[at].topk(5).values.tolist(), strict=True)) < TOLERANCE
    assert bytes(PROMPT).decode() == choice.text[: len(PROMPT)]
    assert logprobs.text_offset[: len(PROMPT)] == list(range(len(PROMPT)))


async def test_the_prompts_table_is_that_of_vllm(noise: Service, oracle: Oracle) -> None:
    answer = await noise.complete(prompt=PROMPT, prompt_logprobs=2, max_tokens=1)
    table = answer.choices[0].prompt_logprobs
    wanted = oracle.logits(PROMPT).log_softmax(-1)
    assert table[0] is None and len(table) == len(PROMPT)
    for at, token in enumerate(PROMPT[1:]):
        entry = table[at + 1][str(token)]
        assert abs(entry["logprob"] - float(wanted[at, token])) < TOLERANCE
        assert entry["rank"] == 1 + int((wanted[at] > wanted[at, token]).sum())
        assert entry["decoded_token"] == chr(token)
        assert {str(index) for index in wanted[at].topk(2).indices.tolist()} <= table[at + 1].keys()


async def test_a_chat_tells_one_entry_a_token_streamed_or_not(letters: Service) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 3}
    whole = await letters.chat(**fields)
    content = whole.choices[0].logprobs.content
    assert [one.token for one in content] == list(whole.choices[0].message.content)
    assert all(len(one.top_logprobs) == 3 and one.top_logprobs[0].token == one.token for one in content)
    streamed = [
        one.model_dump()
        async for chunk in await letters.chat(**fields, stream=True)
        for choice in chunk.choices
        if choice.logprobs
        for one in choice.logprobs.content
    ]
    assert streamed == [one.model_dump() for one in content]


async def test_logprobs_alone_give_each_token_an_empty_list(letters: Service) -> None:
    content = (await letters.chat(logprobs=True)).choices[0].logprobs.content
    assert len(content) == 4 and all(one.top_logprobs == [] for one in content)
    assert (await letters.chat()).choices[0].logprobs is None


async def test_tokens_that_are_half_a_character_have_their_bytes(letters: Service) -> None:
    answer = await letters.complete(prompt="#", logprobs=0, max_tokens=3)
    assert answer.choices[0].text == "éEND"
    assert answer.choices[0].logprobs.tokens == ["bytes:\\xc3", "bytes:\\xa9", "END"]
    assert answer.choices[0].logprobs.text_offset == [0, 0, 1]


async def test_values_end_with_the_text_at_a_stop_string_streamed_or_not(letters: Service) -> None:
    fields: dict[str, Any] = {"prompt": "#", "logprobs": 1, "stop": ["ND"], "max_tokens": 9}
    whole = (await letters.complete(**fields)).choices[0]
    assert (whole.text, whole.finish_reason) == ("éE", "stop")
    assert whole.logprobs.tokens == ["bytes:\\xc3", "bytes:\\xa9", "END"]
    text, tokens, reason = "", [], None
    async for chunk in await letters.complete(**fields, stream=True):
        choice = chunk.choices[0]
        text, reason = text + choice.text, choice.finish_reason or reason
        tokens += choice.logprobs.tokens if choice.logprobs else []
    assert (text, tokens, reason) == (whole.text, whole.logprobs.tokens, "stop")
    shown = await letters.complete(**fields, include_stop_str_in_output=True)
    assert shown.choices[0].text == "éEND"


async def test_special_tokens_are_shown_when_asked(letters: Service) -> None:
    assert (await letters.complete(prompt="#", max_tokens=9)).choices[0].text == "éENDthere"
    shown = await letters.complete(prompt="#", max_tokens=9, skip_special_tokens=False)
    assert shown.choices[0].text == "éEND<|eot|>there"


async def test_each_end_of_the_generation_config_ends_a_text_and_none_does_when_ignored(letters: Service) -> None:
    for prompt, text in (("%", ""), ("#", "éENDthere")):
        answer = await letters.complete(prompt=prompt, max_tokens=20)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == (text, "stop"), prompt
    ignored = (await letters.complete(prompt="#", max_tokens=10, ignore_eos=True)).choices[0]
    assert (ignored.text, ignored.finish_reason) == ("éENDthere%Z~a", "length")


async def test_a_stop_after_the_last_shown_token_shows_no_value(letters: Service) -> None:
    answer = await letters.complete(prompt="#", max_tokens=9, logprobs=0)
    assert answer.choices[0].finish_reason == "stop" and len(answer.choices[0].logprobs.tokens) == 5


async def test_n_answers_share_the_prompt(noise: Service) -> None:
    prompt = [*range(64), 7]
    before = await hits(noise)
    answer = await noise.complete(prompt=prompt, n=4, temperature=1.0, seed=3, max_tokens=6, top_k=0)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in answer.choices}) > 1, "each draws for itself"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (65, 24)
    assert await hits(noise) - before >= 3 * 64
    again = await noise.complete(prompt=prompt, n=2, temperature=1.0, seed=3, max_tokens=6)
    assert [one.text for one in again.choices] == [one.text for one in answer.choices[:2]]
    chat = await noise.chat(n=2, temperature=1.0, stream=True)
    assert {choice.index async for chunk in chat for choice in chunk.choices} == {0, 1}


async def hits(service: Service) -> float:
    return await asyncio.to_thread(service.worker.metric, "octavo_worker_prefix_hit_tokens_total")


async def test_salts_never_share_blocks(noise: Service) -> None:
    prompt = [*range(100, 164), 9]
    salts: list[dict[str, str]] = [{}, {"cache_salt": ""}, {"cache_salt": "x"}, {"cache_salt": "xx"}]
    first = [await noise.complete(prompt=prompt, max_tokens=20, **salt) for salt in salts]
    assert [answer.usage.prompt_tokens_details.cached_tokens for answer in first] == [0] * 4
    second = [await noise.complete(prompt=prompt, max_tokens=20, **salt) for salt in salts]
    assert [answer.usage.prompt_tokens_details.cached_tokens for answer in second] == [64] * 4
    assert len({answer.choices[0].text for answer in [*first, *second]}) == 1
    longer = [*prompt, *(0,) * 40]
    cached = (await noise.complete(prompt=longer, cache_salt="y")).usage.prompt_tokens_details.cached_tokens
    assert cached == 0


async def test_an_echo_alone_scores_the_prompt(letters: Service) -> None:
    answer = await letters.complete(prompt="a b", echo=True, max_tokens=0, logprobs=1)
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == ("a b", "length")
    assert choice.logprobs.tokens == ["a", " ", "b"]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 0)
    assert (await letters.complete(prompt="xyz", echo=True)).choices[0].text == "xyzabcd"
    streamed = [chunk.choices[0].text async for chunk in await letters.complete(prompt="xyz", echo=True, stream=True)]
    assert "".join(streamed) == "xyzabcd"


async def test_every_number_is_finite(letters: Service) -> None:
    fields: list[dict[str, Any]] = [
        {"logprobs": 5, "temperature": 1, "top_k": 1},
        {"logprobs": 5, "echo": True},
        {"logprobs": 20, "logit_bias": {str(ord("b")): -100}},
        {"logprobs": 5, "allowed_token_ids": [ord("z")]},
    ]
    for wanted in fields:
        logprobs = (await letters.complete(**wanted)).choices[0].logprobs
        values = [value for value in logprobs.token_logprobs if value is not None]
        values += [value for table in logprobs.top_logprobs if table for value in table.values()]
        assert values and all(math.isfinite(value) for value in values)


async def test_masks_and_biases_steer_the_text(letters: Service) -> None:
    async def text(**fields: Any) -> str:
        return (await letters.complete(**fields)).choices[0].text

    assert await text() == "bcde"
    assert await text(logit_bias={str(ord("b")): -100, str(ord("q")): 60}) == "qqqq"
    assert await text(allowed_token_ids=[ord("z")]) == "zzzz"
    assert await text(bad_words=["c"], logit_bias={str(ord("x")): 5}) == "bxyz"
    assert await text(bad_words=["bc"], logit_bias={str(ord("x")): 5}) == "bxyz"
    assert await text(logit_bias={str(ord("b")): 24}) == "bbbb"
    assert await text(logit_bias={str(ord("b")): 24}, presence_penalty=2) == "bcde"
    assert await text(logit_bias={str(ord("b")): 24}, frequency_penalty=0.5) == "bbbc"
    assert await text(prompt="aba", logit_bias={str(ord("q")): 20}, repetition_penalty=1.2) == "qrst"
    assert await text(prompt=[301], max_tokens=3) == ""
    assert await text(prompt=[301], max_tokens=3, min_tokens=2) == "\x00ab", "of equals the first: no end yet"
    assert await text(prompt="#", stop=["E"], max_tokens=9, min_tokens=3) == "éENDthere"
    assert await text(min_p=1.0, temperature=2.0, seed=1) == "bcde"
    assert await text(prompt="abc" * 9, truncate_prompt_tokens=2) == "defg"


async def test_bad_values_are_refused_by_name_and_disturb_no_other_request(letters: Service) -> None:
    stream = await letters.complete(max_tokens=200, stream=True)
    assert await letters.refused(logit_bias={"999999": -100, "5": 3}) == "logit_bias"
    assert await letters.refused(logit_bias={"abc": 1}) == "logit_bias"
    assert await letters.refused(allowed_token_ids=[512]) == "allowed_token_ids"
    assert await letters.refused(allowed_token_ids=[EOS], min_tokens=2) == "allowed_token_ids"
    assert await letters.refused(n=17) == "n"
    assert await letters.refused(prompt=["a"] * 100, n=3) == "n"
    assert await letters.refused(logprobs=21) == "logprobs"
    assert await letters.refused(best_of=2) == "best_of"
    assert await letters.refused(suffix="x") == "suffix"
    assert await letters.refused(prompt=[BOS] * 2000, truncate_prompt_tokens=1999, max_tokens=60) == "max_tokens"
    assert len([chunk async for chunk in stream]) >= 200


async def test_every_event_has_usage_when_asked(letters: Service) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    chunks = [chunk async for chunk in await letters.complete(stream=True, stream_options=options)]
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts[0] == 1 and counts[-1] == 4 and counts == sorted(counts)
    assert chunks[-1].choices == []


async def test_temperatures_near_zero_are_greedy_beside_others(noise: Service) -> None:
    first = (await noise.complete(prompt=PROMPT, max_tokens=1, return_token_ids=True)).choices[0].token_ids[0]
    wanted: dict[str, Any] = {"prompt": PROMPT, "logit_bias": {str(first): -100}, "seed": 1, "return_token_ids": True}
    asked = [noise.complete(temperature=value, **wanted) for value in (0, 1e-9, 1e-5, 2)]
    ids = [answer.choices[0].token_ids for answer in await asyncio.gather(*asked)]
    assert ids[0] == ids[1] == ids[2] and first not in ids[0]
