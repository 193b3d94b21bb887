"""Retired words stay retired: names, comments and texts use the field's terms (CONTRIBUTING, How we write)."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Folders and pages that have none of the retired words.
CLEAN = [
    "router", "operator", "src/octavo", "charts", "examples", "proto", "kernels", "worker", "tests", "benchmarks",
    "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Dockerfile", "Makefile", "pyproject.toml",
]  # fmt: skip
READ = (".py", ".proto", ".yaml", ".json", ".tpl", ".txt", ".md", ".sh", ".go", ".jinja", ".d2", ".ini")
# retired word -> its replacement
RETIRED = {
    "anew": "again",
    "bear": "create, tolerate",
    "borne": "tolerated",
    "born": "started",
    "cradle": "fork server",
    "doomed": "to_delete",
    "leftovers": "fields_to_remove",
    "life": "incarnation, lifetime, timeout",
    "lives": "incarnations; is",
    "nursery": "fork server",
    "retreat": "gang_backoff",
    "retreats": "backs off",
    "somebody": "the component, another owner",
    "anybody": "every client",
    "nobody": "no component, no client",
    "those": "the noun itself",
    "told": "reported, sent, configured",
    "torn": "partially_scheduled",
    "who": "the component, that",
    "whoever": "the component",
    "whom": "the component",
    "wish": "desired",
    "wished": "desired",
    "wishes": "desired",
}
# Names that users saw: as a whole.
RETIRED_NAMES = {
    "AsWished": "Healthy",
    "FewerServing": "MinimumReplicasUnavailable",
    "GroupRetreats": "GangBackoff",
    "NameTaken": "NameConflict",
    "PartlyServing": "PartiallyAvailable",
    "RankBeat": "RankHeartbeat",
    "born_ms": "started_at_ms",
    "octavo_worker_late_messages": "octavo_worker_stale_incarnation_messages",
}
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def retired(text: str) -> Iterator[tuple[int, str, str]]:
    """(line from 0, word, replacement) of each retired word in a text; names count by their parts."""
    for number, line in enumerate(text.split("\n")):
        for name in NAME.findall(line):
            if name in RETIRED_NAMES:
                yield number, name, RETIRED_NAMES[name]
                continue
            for part in PART.findall(name):
                if part.lower() in RETIRED:
                    yield number, part, RETIRED[part.lower()]


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each name, comment, and string of a module; other people's names, as in `import x as y`, too."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING)
            or "FSTRING" in tokenize.tok_name[token.type]
        ):
            yield token.start[0], token.string


def findings(path: str, source: str) -> list[str]:
    texts = python_texts(source) if path.endswith(".py") else [(1, source)]
    return [
        f"{path}:{line + offset}: {word!r} is retired; use: {better}"
        for line, text in texts
        for offset, word, better in retired(text)
    ]


def files(folder: str) -> Iterator[Path]:
    """The folder's, without links and generated ones, and without this one, which has the list."""
    for path in sorted((ROOT / folder).rglob("*")):
        inner = path.relative_to(ROOT / folder).parts
        linked = any((ROOT / folder).joinpath(*inner[:depth]).is_symlink() for depth in range(1, len(inner)))
        readable = path.suffix in READ and path.is_file() and not GENERATED.search(path.name)
        if readable and not linked and path != Path(__file__):
            yield path


@pytest.mark.parametrize("folder", CLEAN)
def test_retired_words_do_not_come_back(folder: str) -> None:
    paths = [ROOT / folder] if (ROOT / folder).is_file() else list(files(folder))
    assert paths, f"{folder} has no files"
    found = [line for path in paths for line in findings(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ("def wished_groups(): ...", 1, "wished"),
        ("x = 1\nclass WishList: ...", 2, "Wish"),
        ("x = 1  # made anew", 1, "anew"),
        ('"""One line.\n\nIts life."""', 3, "life"),
        ('add(help="as you wish")', 1, "wish"),
        ("def f(*, born: int) -> None: ...", 1, "born"),
        ('reason = "NameTaken"', 1, "NameTaken"),
    ],
)
def test_each_kind_of_text_is_read(source: str, line: int, word: str) -> None:
    (found,) = findings("a.py", source)
    assert found.startswith(f"a.py:{line}: {word!r}")


def test_a_page_is_read_as_a_whole() -> None:
    (found,) = findings("a.md", "# Title\n\nAsk `x`, whoever reads it.\n")
    assert found.startswith("a.md:3: 'whoever'")


def test_words_that_only_contain_a_retired_one_are_allowed() -> None:
    assert not findings("a.py", 'bearer = lifetime = stubborn = "Bearer lifetimes, reborn; olives"')
