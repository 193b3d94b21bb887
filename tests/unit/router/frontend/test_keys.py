"""API keys: what a file may hold, which requests pass, and how a changed file is followed."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from octavo.router.frontend import keys
from octavo.router.frontend.keys import MAX_KEYS, KeyFile, Keys, KeysInvalid, parse_keys
from octavo.router.jobs.generation import RequestError


def test_a_file_has_one_key_a_line_with_comments_and_blank_lines() -> None:
    assert parse_keys(b"# team a\nalpha\n\n  beta \r\n#gamma\n") == ("alpha", "beta")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "no key"),
        (b"# nothing\n\n", "no key"),
        (b"good\nsecret one\n", "line 2"),
        (b"good\n\xc3\xa9secret\n", "line 2"),
        (b"secret\x00\n", "line 1"),
        (b"s" * 513, "line 1"),
        (b"\n".join(b"secret%d" % number for number in range(MAX_KEYS + 1)), str(MAX_KEYS)),
        (b"secret" * (2 << 20), "larger"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_showing_what_it_holds(data: bytes, expected: str) -> None:
    with pytest.raises(KeysInvalid) as refused:
        parse_keys(data)
    assert expected in str(refused.value) and "secret" not in str(refused.value)


@pytest.mark.parametrize("header", ["Bearer alpha", "bearer beta", "Bearer  alpha", "BEARER beta "])
def test_a_known_key_is_let_in(header: str) -> None:
    Keys(["alpha", "beta"]).check(header)


REFUSED = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "alpha",
    "Basic alpha",
    "Bearer alph",
    "Bearer alphaa",
    "Bearer ALPHA",
    "Bearer alpha,beta",
    "Bearer alpha beta",
    "Bearer \udcff",
    "Bearer " + "\0" * 32,
]


@pytest.mark.parametrize("header", REFUSED)
def test_all_else_is_refused_with_401_that_does_not_repeat_it(header: str | None) -> None:
    with pytest.raises(RequestError) as refused:
        Keys(["alpha", "beta"]).check(header)
    assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")
    assert "alph" not in refused.value.message


def test_no_key_stays_in_memory_as_it_was_written() -> None:
    held = Keys(["alpha-secret"])
    assert "alpha-secret" not in repr(vars(held)) and b"alpha-secret" not in b"".join(held._known)


async def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keys, "POLL_S", 0.01)
    caplog.set_level(logging.INFO)
    path = tmp_path / "keys"
    path.write_text("first\n")
    file = KeyFile(path)
    following = asyncio.create_task(file.follow())
    for content, valid, gone in (("second\n", "second", "first"), ("third\nfourth\n", "fourth", "second")):
        fresh = tmp_path / "fresh"
        fresh.write_text(content)
        os.replace(fresh, path)  # as a mounted Secret changes
        await until_valid(file.keys, valid)
        with pytest.raises(RequestError):
            file.keys.check(f"Bearer {gone}")
    for broken in (lambda: path.write_text("# none\n"), path.unlink):
        broken()
        await asyncio.sleep(0.1)
        file.keys.check("Bearer fourth")
    path.write_text("fifth\n")
    await until_valid(file.keys, "fifth")
    following.cancel()
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2, "each fault is logged once"
    assert not any(name in caplog.text for name in ("second", "third", "fourth", "fifth"))


async def until_valid(held: Keys, key: str) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                return held.check(f"Bearer {key}")
            except RequestError:
                await asyncio.sleep(0.01)
