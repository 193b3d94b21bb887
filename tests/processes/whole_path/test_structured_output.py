"""Answers that must match: JSON, schemas, expressions and choices, from a real engine over real HTTP."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import openai
import pytest
from support.models.checkpoints import random_checkpoint
from support.processes.local import complete, local_run

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "people": {"type": "integer", "minimum": 0, "maximum": 999},
        "river": {"enum": ["Rhine", "Danube"]},
    },
    "required": ["name", "people", "river"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
HOT = {"temperature": 1.5, "max_tokens": 400}


@pytest.fixture(scope="module", params=[(), ("--pipeline", "2", "--tensor", "2")])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One rank; then two stages of two, which share the vocabulary."""
    model = random_checkpoint(tmp_path_factory.mktemp("model") / "random")
    few = ("--device", "cpu", "--kv-cache-memory", "16Mi", "--served-name", "local")
    with local_run(model, *few, *request.param) as run:
        yield run.until_serving()


def text(answer: tuple[int, dict[str, Any]]) -> str:
    status, body = answer
    assert status == 200, body
    choice = body["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    return str(choice["text"])


def is_city(value: Any) -> bool:
    return (
        set(value) == {"name", "people", "river"}
        and len(value["name"]) <= 12
        and 0 <= value["people"] <= 999
        and value["river"] in ("Rhine", "Danube")
    )


async def test_every_answer_matches_its_form_and_free_ones_beside_it_are_what_they_are_alone(url: str) -> None:
    alone = await complete(url, prompt="free", max_tokens=30)
    fields: list[dict[str, Any]] = [
        {"response_format": FORMAT},
        {"guided_json": json.dumps(CITY)},
        {"structured_outputs": {"json": CITY}},
    ]
    schemas = [complete(url, prompt=f"p{n}", seed=n, **HOT, **given) for n, given in enumerate(2 * fields)]
    any_object = HOT | {"response_format": {"type": "json_object"}, "max_tokens": 100}
    closed = any_object | {"logit_bias": {str(ord("}")): 100}}  # closes what it can
    objects = [complete(url, prompt="o", seed=n, **asked) for n, asked in enumerate((any_object, closed))]
    codes = [complete(url, prompt=f"r{n}", seed=n, guided_regex="[A-C]{3}-[0-9]{2}", **HOT) for n in range(3)]
    picks = [complete(url, prompt=f"c{n}", seed=n, guided_choice=["yes", "no", "päper"], **HOT) for n in range(3)]
    lark = [complete(url, prompt="l", guided_grammar='start: "a" b\nb: "x" | "y" b', temperature=0, max_tokens=50)]
    free = [complete(url, prompt="free", max_tokens=30) for _ in range(3)]
    groups = (schemas, objects, codes, picks, lark, free)
    answers = iter(await asyncio.gather(*(one for group in groups for one in group)))
    found = [[next(answers) for _ in group] for group in groups]
    assert all(is_city(json.loads(text(one))) for one in found[0])
    (status, body), ended = found[1]
    assert status == 200 and body["choices"][0]["text"].lstrip().startswith("{"), "it may go on beyond max_tokens"
    assert json.loads(text(ended)) == {}
    assert all(re.fullmatch("[A-C]{3}-[0-9]{2}", text(one)) for one in found[2])
    assert all(text(one) in ("yes", "no", "päper") for one in found[3])
    assert re.fullmatch("ay*x", text(found[4][0]))
    assert [one[1]["choices"] for one in found[5]] == [alone[1]["choices"]] * 3


async def test_the_official_client_gets_a_schema_streamed_and_at_once(url: str) -> None:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask: dict[str, Any] = {
        "model": "local", "messages": [{"role": "user", "content": "Köln"}], "response_format": FORMAT,
        "seed": 7, "temperature": 1.2, "max_tokens": 400,
    }  # fmt: skip
    whole = await client.chat.completions.create(**ask)
    pieces = [
        chunk.choices[0].delta.content or "" async for chunk in await client.chat.completions.create(**ask, stream=True)
    ]
    assert whole.choices[0].message.content == "".join(pieces)
    assert is_city(json.loads("".join(pieces)))


async def test_a_stream_beside_hostile_schemas_goes_on_and_each_of_them_is_refused(url: str) -> None:
    circle = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    hostile: list[tuple[str, Any]] = [
        ("guided_json", '{"items":' * 900 + "{}" + "}" * 900),
        ("guided_json", circle),
        ("guided_json", {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        ("guided_json", {"allOf": [{"anyOf": [{"properties": {f"p{n}": {}}} for n in range(8)]}] * 12}),
        ("guided_regex", r"a[^\s\S]"),
        ("guided_grammar", "start: start"),
    ]
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    long: dict[str, Any] = {"model": "local", "prompt": "free", "max_tokens": 150, "temperature": 0, "stream": True}
    pieces = []
    asked: list[asyncio.Task[tuple[int, dict[str, Any]]]] = []
    async for chunk in await client.completions.create(**long, extra_body={"ignore_eos": True}):
        if not asked:  # it is under way
            asked = [asyncio.create_task(complete(url, **{name: value})) for name, value in hostile]
        pieces.append(chunk.choices[0])
    assert pieces[-1].finish_reason == "length"
    for (name, _), (status, body) in zip(hostile, await asyncio.gather(*asked), strict=True):
        assert (status, body["error"]["param"]) == (400, name), body


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"guided_json": {"type": "string", "minLength": 3, "maxLength": 2}}, "guided_json"),
        ({"guided_json": {"not": {"type": "string"}}}, "guided_json"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_regex": "(?=x)y"}, "guided_regex"),
        ({"guided_regex": "(" * 50}, "guided_regex"),
        ({"guided_grammar": "start: missing"}, "guided_grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_regex"),
        ({"guided_choice": ["a"], "ignore_eos": True}, "ignore_eos"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"guided_json": {"enum": ["x" * 70_000]}}, "guided_json"),
    ],
)
async def test_what_cannot_be_met_is_refused_by_name_and_disturbs_no_other_request(
    url: str, given: dict[str, Any], field: str
) -> None:
    async with aiohttp.ClientSession() as session:
        body = {"model": "local", "prompt": "a", "max_tokens": 5, **given}
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            said = await answer.json()
    assert answer.status == 400, said
    assert said["error"]["param"] == field
    assert (await complete(url, prompt="a", max_tokens=3))[0] == 200
