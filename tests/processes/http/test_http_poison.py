"""A request that takes its groups down with it is not sent again, by the router nor by a client that retries."""

import asyncio
from pathlib import Path

import openai
import pytest
from support.router.fake_leader import Script, serving
from support.router.jobs import until
from support.router.routers import routing
from support.router.vocabularies import byte_level, files, write


async def test_the_official_client_does_not_send_a_poison_request_again(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/leader.sock"
    script = Script(tokenizer=write(tmp_path / "model", files(byte_level())), served_name="m", context_length=2048)
    async with (
        routing([address], ready=False) as router,
        openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=3) as client,
    ):
        asking = asyncio.ensure_future(client.completions.create(model="m", prompt="x", max_tokens=5))
        for _ in range(2):
            async with serving(script, address, holding=True) as leader:
                await until(lambda leader=leader: len(leader.submits) == 1)
        with pytest.raises(openai.InternalServerError) as caught:
            await asking
        assert caught.value.code == "engine_lost_twice"
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert await router.sample("octavo_router_requests_total") == 1
