"""The document at /openapi.json says what the server does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.router.fronts import Front, front
from support.router.json_schema import problems
from support.router.schemathesis_run import findings

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]  # Any: JSON


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    # A short context: a body that asks for no bound is soon answered.
    async with front(tmp_path_factory.mktemp("openapi"), "--client-priority", context_length=64) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def document(served: Front) -> Json:
    async with served.router.session.get(f"{served.router.url}/openapi.json") as answer:
        assert answer.status == 200
        return await answer.json()


def posts(document: Json) -> list[tuple[str, Json, Json]]:
    """path, operation, what its body holds."""
    found = [(path, item["post"]) for path, item in document["paths"].items() if "post" in item]
    return [(path, one, one["requestBody"]["content"]["application/json"]) for path, one in found]


async def test_every_path_answers_as_it_says(served: Front, document: Json) -> None:
    assert document["openapi"].startswith("3.1") and len(document["paths"]) >= 13
    for path, item in document["paths"].items():
        for method, operation in item.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            url = served.router.url + path.replace("{model}", "m")
            async with served.router.session.request(method, url, json=content.get("example")) as answer:
                assert answer.status == 200, (path, await answer.text())
                schema = operation["responses"]["200"]["content"][answer.content_type]["schema"]
                assert list(problems(await answer.json(), schema, document)) == [], path


async def test_examples_are_valid_by_their_own_schema_and_the_server_knows_all_their_fields(document: Json) -> None:
    for path, _, content in posts(document):
        assert list(problems(content["example"], content["schema"], document)) == [], path
        untyped = [name for name, field in content["schema"]["properties"].items() if field == {}]
        assert untyped == [], f"{path}: give a schema to what is served: octavo.router.api_document.schemas.FIELDS"


async def test_errors_are_as_they_are_described(served: Front, document: Json) -> None:
    for path, operation, _ in posts(document):
        for sent in (b"", b"{}", b"[]", b'{"foo": 1}'):
            async with served.router.session.post(served.router.url + path, data=sent) as answer:
                described = operation["responses"][str(answer.status)]["content"][answer.content_type]["schema"]
                assert answer.status == 400 and not list(problems(await answer.json(), described, document))


SPOILT: list[Any] = [True, -1, 0, 1, 1.5, 2**63, "", "é🌶\u0000", [], [[]], [1], {}, {"a": None}]


# Right or wrong together with the example's messages.
TOGETHER = {("/tokenize", "prompt"), ("/tokenize", "add_special_tokens")}
# No schema tells whether these can be compiled, and how these depend on max_tokens and logprobs.
BEYOND = {"guided_regex", "guided_grammar", "min_tokens", "top_logprobs"}


async def test_the_server_and_the_document_agree_on_values_of_every_field(served: Front, document: Json) -> None:
    """What the document forbids is refused; what it allows of a plain type is never said to be wrong."""
    for path, _, content in posts(document):
        for name, schema in content["schema"]["properties"].items():
            bodies = [content["example"] | {"stream": False} | {name: value} for value in SPOILT]
            answers = await asyncio.gather(*(answered(served, path, body) for body in bodies))
            for value, (status, answer) in zip(SPOILT, answers, strict=True):
                seen = (path, name, value, answer)
                if list(problems(value, schema, document)):
                    assert status in (400, 404), seen
                elif status == 400 and is_plain(schema) and (path, name) not in TOGETHER and name not in BEYOND:
                    error = answer["error"]
                    assert error["param"] != name or error["code"] not in ("invalid_value", "unsupported_field"), seen
                else:
                    assert status < 500, seen


def is_plain(schema: Json) -> bool:
    types = schema.get("type", ["object"] if "enum" not in schema else [])
    return not {"object", "array"} & set(types) and "anyOf" not in schema


async def answered(served: Front, path: str, body: Any) -> tuple[int, Json]:
    async with served.router.session.post(served.router.url + path, json=body) as answer:
        if answer.content_type != "application/json":
            return answer.status, {"text": await answer.text()}
        return answer.status, await answer.json()


async def test_schemathesis_finds_nothing(served: Front, tmp_path: Path) -> None:
    assert await findings(served.router.url, tmp_path, 12) == ""
