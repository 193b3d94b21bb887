"""The file of API keys: what it may hold, and how keys follow it when it changes, disappears or is spoilt."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.patience import PATIENCE_S

from octavo.router.frontend import key_file
from octavo.router.frontend.key_file import MAX_KEYS, KeyFile, KeyFileContent, parse_keys
from octavo.router.jobs.generation import RequestError
from octavo.shared.key_problem import KeyProblem


def test_a_file_has_one_key_a_line_with_comments_and_blank_lines() -> None:
    assert parse_keys(b"# team a\nalpha\n\n  beta \r\n#gamma\n") == KeyFileContent(("alpha", "beta"))


TOO_MANY = b"\n".join(b"secret%d" % number for number in range(MAX_KEYS + 2))
SPOILT = [
    (b"", "no key", 0, 1),
    (b"# nothing\n\n", "no key", 0, 1),
    (b"good\nsecret one\n", "line 2 is not a key", 1, 1),
    (b"good\n\xc3\xa9secret\nbetter\n", "line 2 is not a key", 2, 1),
    (b"secret\x00\n", "line 1 is not a key", 0, 1),
    (b"s" * 513, "line 1 is not a key", 0, 1),
    (b"secret one\n" * 7 + b"good\n", "lines 1, 2, 3, 4, 5 and 2 more are not keys", 1, 7),
    (TOO_MANY, f"the first {MAX_KEYS} are valid", MAX_KEYS, 2),
    (b"secret" * (2 << 20), "larger", 0, 1),
]


@pytest.mark.parametrize(("data", "expected", "valid", "unusable"), SPOILT)
def test_lines_that_are_no_keys_are_named_by_number_and_the_others_are_valid(
    data: bytes, expected: str, valid: int, unusable: int
) -> None:
    content = parse_keys(data)
    assert content.problem is KeyProblem.UNUSABLE and expected in content.message and "secret" not in content.message
    assert (len(content.keys), content.unusable) == (valid, unusable)


def is_valid(file: KeyFile, key: str) -> bool:
    try:
        file.keys.check(f"Bearer {key}")
    except RequestError:
        return False
    return True


def state(file: KeyFile, key: str) -> tuple[KeyProblem | None, bool]:
    return file.problem[0] if file.problem else None, is_valid(file, key)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def replace(path: Path, content: str) -> None:
    """As a mounted Secret changes."""
    fresh = path.with_name("fresh")
    fresh.write_text(content)
    os.replace(fresh, path)


async def test_no_key_is_valid_that_the_file_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_file, "POLL_S", 0.01)
    caplog.set_level(logging.INFO)
    path = tmp_path / "keys"
    path.write_text("first\n")
    file = KeyFile(path)
    following = asyncio.create_task(file.follow())
    for content, valid, gone in (("second\n", "second", "first"), ("third\nfourth\n", "fourth", "second")):
        replace(path, content)
        await until(lambda valid=valid: is_valid(file, valid))
        assert not is_valid(file, gone) and file.problem is None
    replace(path, "third and fifth\nfourth\n")
    await until(lambda: not is_valid(file, "third"))
    assert is_valid(file, "fourth") and file.problem is not None and "line 1 is not a key" in file.problem[1]
    for break_it, problem in (
        (lambda: replace(path, "# none\n"), KeyProblem.UNUSABLE),
        (path.unlink, KeyProblem.MISSING),
    ):
        break_it()
        await until(lambda problem=problem: state(file, "fourth") == (problem, False))
    replace(path, "sixth\n")
    await until(lambda: is_valid(file, "sixth"))
    following.cancel()
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3, "each fault is logged once"
    assert "1 valid" in errors[0] and "every request is refused" in errors[2]
    assert not any(name in caplog.text for name in ("second", "third", "fourth", "fifth", "sixth"))


def test_a_file_that_is_missing_at_the_start_makes_no_key_valid_and_is_counted(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    assert file.keys.count == 0 and file.problem is not None and file.problem[0] is KeyProblem.MISSING
    assert {name: value for name, _, _, value in file.readings()} == {
        "octavo_router_api_keys": 0,
        "octavo_router_unusable_api_keys": 1,
    }
    assert file.to_json() == {"valid": False, "problem": "missing", "message": "there is no such file"}


async def test_a_folder_where_the_file_should_be_makes_no_key_valid_until_it_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_file, "POLL_S", 0.01)
    path = tmp_path / "keys"
    path.mkdir()
    file = KeyFile(path)
    assert file.problem is not None and file.problem[0] is KeyProblem.UNUSABLE
    following = asyncio.create_task(file.follow())
    path.rmdir()
    path.write_text("alpha\n")
    await until(lambda: is_valid(file, "alpha"))
    following.cancel()


async def test_a_look_that_fails_by_a_bug_leaves_no_key_valid_and_the_next_look_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_file, "POLL_S", 0.01)
    path = tmp_path / "keys"
    path.write_text("alpha\n")
    file = KeyFile(path)
    read, broken = key_file.read_keys, True

    def reading(asked: Path) -> KeyFileContent:
        if broken:
            raise MemoryError
        return read(asked)

    monkeypatch.setattr(key_file, "read_keys", reading)
    following = asyncio.create_task(file.follow())
    replace(path, "beta\n")
    await until(lambda: not is_valid(file, "alpha"))
    assert file.problem is not None and file.keys.count == 0
    broken = False
    await until(lambda: is_valid(file, "beta"))
    following.cancel()
