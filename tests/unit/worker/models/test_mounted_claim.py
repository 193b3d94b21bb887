"""pvc://CLAIM/PATH is found in the claim's mount, and what is not there is said in the words of the uri."""

from pathlib import Path

import pytest

from octavo.shared.model_uri import parse
from octavo.worker.errors import ModelError
from octavo.worker.models.sources.mounted_claim import MountedClaim


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    for name in ("my-llama", "other/v1", "other/v 2", "lost+found"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "notes.txt").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("pvc://models/my-llama", "my-llama"),
        ("pvc://models/other/v1/", "other/v1"),
        ("pvc://models/other/v%202", "other/v 2"),
        ("pvc://models", "."),
    ],
)
def test_a_folder_of_the_claim_is_found(claim: Path, uri: str, folder: str) -> None:
    assert MountedClaim(claim).folder(parse(uri), None) == (claim / folder).resolve()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("pvc://models/absent", "the claim models has no folder absent; it has my-llama, other"),
        ("pvc://models/absent/deeper", "the claim models has no folder absent; it has my-llama, other"),
        ("pvc://models/other/v3", "the folder other of the claim models has no folder v3; it has v 2, v1"),
        ("pvc://models/my-llama/v1", "the folder my-llama of the claim models has no folder v1; it has no folders"),
        ("pvc://models/notes.txt", "notes.txt of the claim models is not a folder"),
    ],
)
def test_what_is_not_there_is_said_with_what_the_claim_has(claim: Path, uri: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        MountedClaim(claim).folder(parse(uri), None)
    assert str(caught.value) == f"{uri}: {words}" and caught.value.reason == "ModelNotFound"


def test_many_folders_are_counted(tmp_path: Path) -> None:
    for number in range(14):
        (tmp_path / f"m{number:02}").mkdir()
    with pytest.raises(ModelError, match=r"it has m00, .*, m09 and 4 more$"):
        MountedClaim(tmp_path).folder(parse("pvc://models/absent"), None)


def test_without_a_cluster_there_is_no_claim(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="mounted only in pods of a cluster; use bundled://, file:// or a path"):
        MountedClaim(tmp_path / "models").folder(parse("pvc://models/llama"), None)
