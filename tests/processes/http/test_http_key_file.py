"""A router whose file of API keys is missing, disappears or is spoilt answers no request without a valid key."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from support.patience import PATIENCE_S
from support.router.fronts import Front, front
from support.router.grpc_calls import calling, message_of, refused

GOOD = {"model": "m", "prompt": "x", "max_tokens": 2}
UNAVAILABLE = (503, "api_keys_unavailable")


async def asked(served: Front, key: str | None) -> tuple[int, str]:
    """Status and error code of a request over HTTP."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    status, answer = await served.router.post("/v1/completions", GOOD, **headers)
    return status, (answer.get("error") or {}).get("code", "")


async def asked_over_grpc(served: Front, key: str) -> tuple[grpc.StatusCode, str, str | None]:
    async with calling(served.router.grpc) as stub:
        return await refused(stub.Generate(message_of(GOOD), metadata=(("authorization", f"Bearer {key}"),)))


async def page(served: Front) -> dict:  # JSON of any shape
    async with served.router.session.get(f"{served.router.url}/routerz") as answer:
        assert answer.status == 200, "such a router takes requests, to refuse them with the reason"
        return (await answer.json())["keys"]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.1)


async def test_a_router_that_starts_without_its_file_refuses_everybody_until_it_comes(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    async with front(tmp_path, "--api-keys-file", str(keys), ready=False) as served:
        for key in (None, "right"):
            assert await asked(served, key) == UNAVAILABLE
        assert (await asked_over_grpc(served, "right"))[:2] == (grpc.StatusCode.UNAVAILABLE, "api_keys_unavailable")
        assert await served.router.status("/v1/models") == 503 and await served.router.status("/readyz") == 503
        assert await page(served) == {"valid": False, "problem": "missing", "message": "there is no such file"}
        assert await served.router.sample("octavo_router_api_keys") == 0
        assert await served.router.sample("octavo_router_unusable_api_keys") == 1
        assert not served.leader.submits
        keys.write_text("right\n")
        await until(lambda: _serves(served, "right"))
        assert await asked(served, None) == await asked(served, "wrong") == (401, "invalid_api_key")
        assert await page(served) == {"valid": True}
        assert await served.router.sample("octavo_router_api_keys") == 1


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (Path.unlink, "missing"),
    "emptied": (lambda path: path.write_text(""), "unusable"),
    "spoilt": (lambda path: path.write_text("key with spaces\n"), "unusable"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_keys_of_a_file_that_breaks_under_a_running_router_are_valid_no_longer(
    tmp_path: Path, fault: str
) -> None:
    breaking, problem = BROKEN[fault]
    keys = tmp_path / "keys"
    keys.write_text("right\n")
    async with front(tmp_path, "--api-keys-file", str(keys)) as served:
        assert (await asked(served, "right"))[0] == 200
        breaking(keys)
        await until(lambda: _answers(served, "right", UNAVAILABLE))
        assert await asked(served, None) == await asked(served, "wrong") == UNAVAILABLE
        assert (await asked_over_grpc(served, "right"))[:2] == (grpc.StatusCode.UNAVAILABLE, "api_keys_unavailable")
        said = await page(served)
        assert (said["valid"], said["problem"]) == (False, problem)


async def test_the_keys_of_good_lines_are_valid_beside_a_spoilt_one(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("kept\nrevoked\n")
    async with front(tmp_path, "--api-keys-file", str(keys)) as served:
        keys.write_text("key with spaces\nkept\n")
        await until(lambda: _answers(served, "revoked", (401, "invalid_api_key")))
        assert (await asked(served, "kept"))[0] == 200
        assert await page(served) == {
            "valid": True,
            "problem": "unusable",
            "message": "line 1 is not a key: up to 512 printable ASCII characters without spaces",
        }
        assert await served.router.sample("octavo_router_unusable_api_keys") == 1


async def _serves(served: Front, key: str) -> bool:
    return (await asked(served, key))[0] == 200


async def _answers(served: Front, key: str, answer: tuple[int, str]) -> bool:
    return await asked(served, key) == answer
