"""Clients may set the priority of their requests where the router lets them: a lower one goes first."""

from pathlib import Path

import pytest
from support.router.fronts import front

pytestmark = pytest.mark.asyncio


async def test_a_lower_priority_reaches_the_engine_as_a_higher_one(tmp_path: Path) -> None:
    async with front(tmp_path, "--client-priority") as served:
        for fields in ({"priority": -7}, {"priority": 3}, {"priority": 0}, {}):
            body = {"prompt": "x", "max_tokens": 2} | fields
            async with served.router.session.post(f"{served.router.url}/v1/completions", json=body) as answer:
                assert answer.status == 200
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "priority": 5}
        async with served.router.session.post(f"{served.router.url}/v1/chat/completions", json=chat) as answer:
            assert answer.status == 200
        assert [submit.priority for submit in served.leader.submits] == [7, -3, 0, 0, -5]
        for wrong in (2**31, -(2**31), 0.5, "1", True):
            body = {"prompt": "x", "priority": wrong}
            async with served.router.session.post(f"{served.router.url}/v1/completions", json=body) as answer:
                assert (answer.status, (await answer.json())["error"]["param"]) == (400, "priority")


async def test_without_the_flag_every_priority_but_0_is_refused(tmp_path: Path) -> None:
    async with front(tmp_path) as served:
        for priority, status in ((0, 200), (1, 400), (-1, 400)):
            body = {"prompt": "x", "max_tokens": 2, "priority": priority}
            async with served.router.session.post(f"{served.router.url}/v1/completions", json=body) as answer:
                assert answer.status == status
                if status == 400:
                    assert (await answer.json())["error"]["param"] == "priority"
