"""The policy of --policy decides which group gets a request."""

import asyncio
from pathlib import Path

import pytest
from support.patience import PATIENCE_S
from support.router.fake_leader import Script, serving
from support.router.routers import routing
from support.router.vocabularies import byte_level, files, write

from octavo.router.dispatch.rules.prefix_memory import AFFINITY_BLOCK

PROMPT = list(range(2 * AFFINITY_BLOCK))


@pytest.mark.parametrize(("flags", "shares"), [(("--policy", "round-robin"), [3, 3]), ((), [0, 6])])
async def test_equal_prompts_spread_by_turns_and_stay_together_by_their_prefix(
    tmp_path: Path, flags: tuple[str, ...], shares: list[int]
) -> None:
    script = Script(served_name="m", tokenizer=write(tmp_path / "model", files(byte_level())))
    addresses = [f"unix:{tmp_path}/{name}" for name in "ab"]
    async with serving(script, addresses[0]) as one, serving(script, addresses[1]) as other:
        async with routing(addresses, *flags) as router:
            async with asyncio.timeout(PATIENCE_S):
                while await router.sample("octavo_router_missing_groups"):
                    await asyncio.sleep(0.05)
            for _ in range(6):
                status, _ = await router.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 2})
                assert status == 200
        assert sorted(len(leader.submits) for leader in (one, other)) == shares
