"""Access: API keys on every path but the probes', and pages of other origins."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import openai
import pytest
import pytest_asyncio
from support.patience import PATIENCE_S
from support.router.fronts import Front, front
from support.router.schemathesis_run import findings
from support.router.wire_http import get, post, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")
KEY = "sk-octavo-1"
PAGE = "https://app.example.com"
GOOD = {"model": "m", "prompt": "x", "max_tokens": 2}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Front, Path]]:
    folder = tmp_path_factory.mktemp("locked")
    keys = folder / "keys"
    keys.write_text(f"# two teams\n{KEY}\nsk-octavo-2\n")
    async with front(folder, "--api-keys-file", str(keys), "--cors-origin", PAGE) as served:
        yield served, keys


PATHS = [
    "/",
    "/v1",
    "/v1/models",
    "/v1/models/m",
    "//v1/models",
    "/V1/models",
    "/v1/../metrics",
    "/v1/%2e%2e/livez/../v1/models",
    "/livez/",
    "/livez/x",
    "//livez",
    "/LIVEZ",
    "/livez%00",
    "/livez/../v1/models",
    "/readyz/../v1/models",
    "/health",
    "/metrics",
    "/version",
    "/openapi.json",
    "/tokenize",
    "/detokenize",
    "/v1/responses",
    "/v1/completions",
    "/v1/chat/completions",
    "/no/such/path",
]


async def test_no_path_but_the_probes_answers_without_a_key(locked: tuple[Front, Path]) -> None:
    url = locked[0].router.url
    for path in PATHS:
        for sent in (get(path), get(path, method="HEAD"), post(path, b"{}"), get(path, method="DELETE")):
            answer = await raw(url, sent)
            assert answer.status == 401, (path, sent[:20])
            assert answer.headers["www-authenticate"] == "Bearer"
            if not sent.startswith(b"HEAD"):
                assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"
    for path in ("/livez", "/readyz", "/routerz", "/livez?verbose"):
        assert (await raw(url, get(path))).status == 200, path


async def test_a_wrong_key_or_scheme_is_as_no_key(locked: tuple[Front, Path]) -> None:
    url = locked[0].router.url
    for header in (f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer ", "Bearer " + "x" * 4000):
        assert (await raw(url, get("/v1/models", f"Authorization: {header}"))).status == 401, header
    assert (await raw(url, get("/v1/models", f"x-api-key: {KEY}"))).status == 401
    assert (await raw(url, get("/v1/models", f"Authorization: bearer {KEY}"))).status == 200


async def test_the_official_client_is_served_with_a_key_and_refused_without(locked: tuple[Front, Path]) -> None:
    router = locked[0].router
    for key, right in ((KEY, True), ("sk-octavo-2", True), ("sk-octavo-3", False)):
        async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key=key, max_retries=0) as client:
            try:
                answer = await client.completions.create(model="m", prompt="x", max_tokens=2)
                assert right and answer.usage is not None and answer.usage.completion_tokens == 2
                chunks = [chunk async for chunk in await client.completions.create(**GOOD, stream=True)]
                assert chunks[-1].choices[0].finish_reason == "length"
            except openai.AuthenticationError as error:
                assert not right and error.code == "invalid_api_key"
    assert 'code="401",endpoint="completions"' in await router.metrics()


async def test_with_a_key_wrong_paths_are_404_and_wrong_methods_405(locked: tuple[Front, Path]) -> None:
    url, key = locked[0].router.url, f"Authorization: Bearer {KEY}"
    for path in ("//v1/models", "/V1/models", "/v1/../metrics", "/metrics", "/v1", "/v1/models/"):
        assert (await raw(url, get(path, key))).status == 404, path
    answer = await raw(url, get("/v1/completions", key))
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.timeout(300)
async def test_schemathesis_finds_nothing_where_a_key_is_needed(locked: tuple[Front, Path], tmp_path: Path) -> None:
    """With a key, and, of itself, without one and with a wrong one."""
    options = ("--phases", "examples,fuzzing", "--header", f"Authorization: Bearer {KEY}")
    assert await findings(locked[0].router.url, tmp_path, 2, *options, "--header", "X-Request-Timeout: 5") == ""


async def test_the_document_says_that_a_key_is_needed(locked: tuple[Front, Path]) -> None:
    answer = await raw(locked[0].router.url, get("/openapi.json", f"Authorization: Bearer {KEY}"))
    document = json.loads(answer.body)
    assert document["components"]["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer"}
    closed = {path for path, item in document["paths"].items() if all("security" in one for one in item.values())}
    assert set(document["paths"]) - closed == {"/livez", "/readyz", "/routerz"}


async def test_a_key_that_leaves_the_file_is_refused_without_a_restart(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("old\n")
    async with front(tmp_path, "--api-keys-file", str(keys)) as served:
        url = served.router.url
        keys.write_text("new\n")
        async with asyncio.timeout(PATIENCE_S):
            while (await raw(url, get("/v1/models", "Authorization: Bearer new"))).status != 200:
                await asyncio.sleep(0.1)
        assert (await raw(url, get("/v1/models", "Authorization: Bearer old"))).status == 401


async def test_a_preflight_needs_no_key_and_answers_carry_the_origin(locked: tuple[Front, Path]) -> None:
    router = locked[0].router
    asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    async with router.session.options(f"{router.url}/v1/completions", headers=asks) as answer:
        assert answer.status == 204 and answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization"
    headers = {"Origin": PAGE, "Authorization": f"Bearer {KEY}"}
    for body in (GOOD, GOOD | {"stream": True}, GOOD | {"max_tokens": 0}):
        async with router.session.post(f"{router.url}/v1/completions", json=body, headers=headers) as answer:
            await answer.read()
            assert answer.headers["Access-Control-Allow-Origin"] == PAGE, body
            assert "X-Request-Id" in answer.headers["Access-Control-Expose-Headers"]


async def test_another_origin_gets_no_leave_and_its_preflight_is_refused(locked: tuple[Front, Path]) -> None:
    router = locked[0].router
    asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    async with router.session.options(f"{router.url}/v1/completions", headers=asks) as answer:
        assert answer.status == 401 and "Access-Control-Allow-Origin" not in answer.headers
    answer = await raw(router.url, get("/livez", f"Origin: {PAGE}\r\nX-Bad: a"))
    assert answer.headers["access-control-allow-origin"] == PAGE


async def test_by_default_there_are_no_keys_and_no_cross_origin_headers(tmp_path: Path) -> None:
    async with front(tmp_path) as served:
        asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        async with aiohttp.ClientSession() as session:
            async with session.options(f"{served.router.url}/v1/completions", headers=asks) as answer:
                assert answer.status == 405
                assert not [name for name in answer.headers if name.startswith("Access-Control")]
            async with session.get(f"{served.router.url}/v1/models", headers=asks) as answer:
                assert answer.status == 200
                assert not [name for name in answer.headers if name.startswith("Access-Control")]
