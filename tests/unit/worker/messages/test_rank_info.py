"""What a group can do is what the least of its ranks can."""

from dataclasses import replace

from octavo.worker.messages.rank_info import RankCapabilities, dump, intersect, load

ONE = RankCapabilities(100, 16, 512, 4096, 8192, 256, ["decode-1", "decode-2"], "cuda", ["min_p"], "peers")


def test_the_least_of_the_ranks_bounds_the_group() -> None:
    said = intersect([ONE, replace(ONE, blocks=90, max_requests=8, graphs=["decode-2"], features=[])])
    assert (said.blocks, said.max_requests, said.graphs, said.features) == (90, 8, ["decode-2"], [])
    assert said.context_length == 90 * 16


def test_the_path_names_every_way_in_which_stages_add_up() -> None:
    assert intersect([ONE, ONE]).path == "peers"
    assert intersect([ONE, replace(ONE, path="nccl"), ONE]).path == "nccl+peers"


def test_what_the_ranks_have_hashed_is_added_up() -> None:
    said = [replace(ONE, weights=f"{part:x}") for part in (5, 2**255, 2**255, 11)]
    assert intersect(said).weights == f"{2**256 + 16:x}"
    assert intersect([intersect(said[:2]), intersect(said[2:])]).weights == intersect(said).weights


def test_it_travels_as_it_is() -> None:
    assert load(dump(ONE)) == ONE
