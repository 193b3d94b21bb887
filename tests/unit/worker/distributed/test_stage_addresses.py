"""Every rank of a group is found by the address of its pod."""

import glob
import uuid
from pathlib import Path

import pytest

from octavo.worker.addresses import rank_address, rendezvous, rendezvous_files


@pytest.mark.parametrize(
    ("group", "first", "third"),
    [
        ("unix:/run/g", "unix:/run/g.0", "unix:/run/g.2"),
        ("chat-0-1.chat-ranks:8501", "chat-0-1.chat-ranks:8601", "chat-0-1.chat-ranks:8603"),
        ("[::1]:1", "[::1]:101", "[::1]:103"),
    ],
)
def test_a_rank_listens_beside_its_pod(group: str, first: str, third: str) -> None:
    assert (rank_address(group, 0), rank_address(group, 2)) == (first, third)


def test_the_ranks_of_a_stage_meet_at_a_port_of_their_own() -> None:
    assert rendezvous("host:8501", "i") == "tcp://host:8600"


def test_each_incarnation_meets_at_a_file_of_its_own() -> None:
    assert rendezvous("unix:/run/g", "one") == "file:///run/g.one"
    assert rendezvous("unix:/run/g", "two") != rendezvous("unix:/run/g", "one")


def test_the_files_at_which_a_pod_met_are_found_and_no_others(tmp_path: Path) -> None:
    group = f"unix:{tmp_path}/pod[0].sock"
    met = {Path(rendezvous(group, uuid.uuid4().hex).removeprefix("file://")) for _ in range(3)}
    for path in (*met, tmp_path / "pod[0].sock", tmp_path / "pod[0].sock.1", tmp_path / f"pod0.sock.{'0' * 32}"):
        path.touch()
    pattern = rendezvous_files(group)
    assert pattern is not None and {Path(found) for found in glob.glob(pattern)} == met
    assert rendezvous_files("host:8501") is None


def test_a_port_beyond_the_last_is_refused() -> None:
    assert rank_address("h:65435", 0) == "h:65535"
    with pytest.raises(ValueError, match="h:65436"):
        rank_address("h:65436", 0)
