"""The supervisor's children, as real processes that end at awkward moments."""

import asyncio
import os

import pytest

from octavo.worker.children import Children
from octavo.worker.config import Config
from octavo.worker.wiring import Wiring, create_shared

pytestmark = pytest.mark.timeout(60)
ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")


async def test_a_child_that_ended_unseen_does_not_keep_the_others_from_being_killed():
    shared = create_shared()
    config = Config(model="/m", served_name="m", **ADDRESSES)
    children = Children()
    try:
        share = Wiring(config, "/m", "f", shared, local="unix:/tmp/y", report=-1, slot=0, parent=os.getpid())
        pid = children.start("no_such_process", -1, share)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now, and no SIGCHLD was handled
        children.signal("no_such_process", 15)
        await asyncio.wait_for(children.kill(), 5)
    finally:
        shared.close()
    assert [(ended.name, ended.code) for ended in children.exits] == [("no_such_process", 1)]
    assert children.unkillable_s == 0
