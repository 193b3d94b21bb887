"""The release before this one is one of this tree's own repository, or there is none and its test is skipped."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.processes import earlier_release
from support.processes.earlier_release import earlier, earlier_commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
OCTAVO = "src/octavo/__init__.py"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No repository that the folder of the tests may lie in, and no configuration of the machine."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "x")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "x@example.com")


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


def repository(tree: Path, commits: int) -> list[str]:
    """Its commits, the oldest first; each has octavo."""
    (tree / OCTAVO).parent.mkdir(parents=True)
    git(tree, "init", "-q")
    return [commit(tree, str(number)) for number in range(commits)]


def commit(tree: Path, text: str) -> str:
    (tree / OCTAVO).write_text(text)
    git(tree, "add", "--all")
    git(tree, "commit", "-q", "-m", text)
    return git(tree, "rev-parse", "HEAD")


def test_it_is_the_commit_before_or_the_newest_tag_of_a_version(tmp_path: Path) -> None:
    first, second, _ = repository(tmp_path / "tree", 3)
    assert earlier_commit(tmp_path / "tree") == second
    git(tmp_path / "tree", "tag", "nightly", second)
    assert earlier_commit(tmp_path / "tree") == second
    git(tmp_path / "tree", "tag", "v1.0", first)
    assert earlier_commit(tmp_path / "tree") == "v1.0"


def test_a_tree_within_another_repository_has_none(tmp_path: Path) -> None:
    repository(tmp_path / "outer", 3)
    assert earlier_commit(tmp_path / "outer/src") is None


def test_a_tree_without_history_or_of_one_commit_has_none(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    assert repository(tree, 2) and earlier_commit(tree)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tree}", "shallow")
    assert earlier_commit(tmp_path / "shallow") is None
    shutil.rmtree(tree / ".git")
    assert earlier_commit(tree) is None


def test_without_git_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path / "tree", 2)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert earlier_commit(tmp_path / "tree") is None


def test_where_there_is_none_the_test_is_skipped_even_if_a_bed_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_release, "ROOT", tmp_path)
    monkeypatch.setenv("OCTAVO_REQUIRE_BED", "1")
    with pytest.raises(pytest.skip.Exception, match="no earlier release"):
        earlier(tmp_path / "earlier")


def test_its_tree_has_octavo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    repository(tree, 2)
    monkeypatch.setattr(earlier_release, "ROOT", tree)
    earlier(tmp_path / "earlier")
    assert (tmp_path / "earlier" / OCTAVO).read_text() == "0"
    git(tree, "mv", "src", "source")
    git(tree, "commit", "-q", "-m", "elsewhere")
    git(tree, "commit", "-q", "--allow-empty", "-m", "after")
    with pytest.raises(AssertionError, match="has no octavo"):
        earlier(tmp_path / "without")
