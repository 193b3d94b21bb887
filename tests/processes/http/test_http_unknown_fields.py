"""Unknown fields are reported in a header of the answer, and refused where client or router is strict."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.router.fronts import Front, front

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
ASKS = [
    ("/v1/completions", {"prompt": "x", "max_tokens": 2}),
    ("/v1/completions", {"prompt": "x", "max_tokens": 2, "stream": True}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | {"stream": True}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 2}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 2, "stream": True}),
    ("/tokenize", {"prompt": "x"}),
    ("/detokenize", {"tokens": [1]}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    async with front(tmp_path_factory.mktemp("unknown")) as made:
        yield made


@pytest.mark.parametrize(("path", "good"), ASKS)
async def test_an_unknown_field_is_reported_in_a_header_and_refused_when_asked(
    served: Front, path: str, good: dict[str, object]
) -> None:
    url, session = served.router.url + path, served.router.session
    async with session.post(url, json=good) as answer:
        assert answer.status == 200 and "X-Octavo-Warning" not in answer.headers
        await answer.read()
    async with session.post(url, json=good | {"foo": 1, "b\r\nar": 2, "nül": None}) as answer:
        assert answer.status == 200
        assert answer.headers["X-Octavo-Warning"] == 'unknown fields ignored: "foo", "b??ar"'
        await answer.read()
    async with session.post(url, json=good | {"foo": 1}, headers={"X-Octavo-Strict": "true"}) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert (error["param"], error["code"]) == ("foo", "unsupported_field")


async def test_many_long_names_make_a_bounded_header(served: Front) -> None:
    body = {"prompt": "x", "max_tokens": 2} | {f"{index}" + "é" * 5000: index for index in range(200)}
    async with served.router.session.post(f"{served.router.url}/v1/completions", json=body) as answer:
        assert answer.status == 200 and len(answer.headers["X-Octavo-Warning"]) < 1200


async def test_what_is_known_and_not_served_is_refused_however_lenient(served: Front) -> None:
    for path, good in ASKS:
        for field, value in (
            ("guided_decoding_backend", "x"),
            ("best_of", 2),
            ("use_beam_search", True),
            ("lora_path", "x"),
        ):
            if path == "/tokenize" and field in ("best_of", "use_beam_search"):
                continue
            status, answer = await served.router.post(path, good | {field: value})
            assert (status, answer["error"]["param"]) == (400, field)


async def test_a_strict_router_refuses_them_all(tmp_path: Path) -> None:
    async with front(tmp_path, "--strict") as served:
        for path, good in ASKS:
            status, answer = await served.router.post(path, good | {"foo": 1}, **{"X-Octavo-Strict": "false"})
            assert (status, answer["error"]["param"]) == (400, "foo")
            async with served.router.session.post(served.router.url + path, json=good) as answer:
                assert answer.status == 200
