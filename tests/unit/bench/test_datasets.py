"""Prompts have exactly the tokens that were asked for, share only the asked prefix, and come from the seed alone."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models.checkpoints import successor_checkpoint

from octavo.bench.arithmetic import datasets
from octavo.bench.arithmetic.datasets import DatasetError, RandomLengths, Record, Repetition, Request, Turn
from octavo.bench.options import DatasetOptions
from octavo.bench.tokenizer import Ids, TokenizerError, Tokens, Words
from octavo.bench.workload import Workload, read_custom, read_sharegpt, workload

IDS = Ids(range(300, 30_000))


def words(text: str) -> int:
    return len(text.split())


def made(name: str = "random", *, warmups: int = 0, as_text: bool = False, tokens: Tokens | None = None, **fields: Any):
    given: dict[str, Any] = {
        "path": None, "num_prompts": 6, "seed": 3, "shuffle": True, "oversample": True, "output_len": None,
        "lengths": RandomLengths(24, 8, 0.0, 0),
    }  # fmt: skip
    return workload(DatasetOptions(name, **(given | fields)), tokens, warmups, as_text)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(successor_checkpoint(tmp_path_factory.mktemp("model")))


@given(
    st.integers(1, 40), st.integers(1, 40), st.floats(0, 0.99), st.integers(0, 20), st.integers(0, 20), st.integers()
)
def test_random_prompts_have_a_length_of_the_range(
    length: int, output: int, ratio: float, prefix: int, count: int, seed: int
) -> None:
    lengths = RandomLengths(length, output, ratio, max(1, prefix))
    made = datasets.random_requests(lengths, count, IDS, Random(seed))
    assert len(made) == count
    for one in made:
        assert one.prompt_tokens == len(one.prompt)
        assert length * (1 - ratio) - 1 <= len(one.prompt) - lengths.prefix_len <= length * (1 + ratio) + 1
        assert max(1, output * (1 - ratio) - 1) <= one.output_tokens <= output * (1 + ratio) + 1


def test_random_prompts_without_a_range_have_exactly_the_length() -> None:
    made = datasets.random_requests(RandomLengths(1024, 128, 0.0, 0), 5, IDS, Random(0))
    assert {(len(one.prompt), one.output_tokens) for one in made} == {(1024, 128)}


def test_random_prompts_share_the_asked_prefix_and_no_block_of_sixteen_more() -> None:
    requests = datasets.random_requests(RandomLengths(64, 1, 0.0, 32), 40, IDS, Random(0))
    assert len({tuple(one.prompt[:32]) for one in requests}) == 1
    blocks = Counter(tuple(one.prompt[at : at + 16]) for one in requests for at in range(32, 96, 16))
    assert set(blocks.values()) == {1}


def test_prompts_of_no_tokens_are_refused_by_the_name_of_the_option() -> None:
    with pytest.raises(DatasetError, match="--random-input-len"):
        datasets.random_requests(RandomLengths(1, 1, 0.5, 0), 1, IDS, Random(0))


@given(st.integers(1, 5), st.integers(0, 12), st.booleans())
def test_prefixes_repeat_equally_often(prefixes: int, more: int, shuffle: bool) -> None:
    count = prefixes + more
    lengths = Repetition(16, 8, prefixes, 4)
    requests = datasets.repeated_prefixes(lengths, count, IDS, Random(0), shuffle)
    seen = Counter(tuple(one.prompt[:16]) for one in requests)
    assert len(seen) == prefixes and set(seen.values()) == {count // prefixes}
    assert len({tuple(one.prompt[16:]) for one in requests}) == len(requests)
    assert {(len(one.prompt), one.output_tokens) for one in requests} == {(24, 4)}


def test_fewer_prompts_than_prefixes_are_refused() -> None:
    with pytest.raises(DatasetError, match="--num-prompts: 3 is less"):
        datasets.repeated_prefixes(Repetition(1, 1, 4, 1), 3, IDS, Random(0), True)


def test_conversations_too_short_or_too_long_are_passed_over() -> None:
    fine = Turn("four words are here", "and four of answer")
    turns = [Turn("too short", "w " * 9), Turn("w " * 1025, "w " * 9), Turn("w " * 1000, "w " * 1049), fine]
    turns += [Turn("four words are here", "short")]
    made = datasets.conversations(turns, 9, None, words, Random(0), False)
    assert made == [Request(fine.question, 4, 4)]
    # The answer's own length matters no more when all are given one.
    assert len(datasets.conversations(turns, 9, 50, words, Random(0), False)) == 3


def test_without_a_tokenizer_conversations_need_an_output_length() -> None:
    turns = [Turn("a", "b")]
    assert datasets.conversations(turns, 1, 7, None, Random(0), True) == [Request("a", None, 7)]
    with pytest.raises(DatasetError, match="--sharegpt-output-len"):
        datasets.conversations(turns, 1, None, None, Random(0), True)


def test_records_have_the_given_output_length_or_their_own() -> None:
    records = [Record("a b", 5), Record("c", None)]
    made = datasets.prompts(records, 9, 3, words, Random(0), False)
    assert made == [Request("a b", 2, 3), Request("c", 1, 3)]
    assert datasets.prompts(records[:1], 9, None, None, Random(0), False) == [Request("a b", None, 5)]
    with pytest.raises(DatasetError, match="--custom-output-len"):
        datasets.prompts(records, 9, None, None, Random(0), False)


def test_ids_are_of_the_vocabulary_without_control_tokens(tokens: Tokens) -> None:
    drawn = {number for one in made(num_prompts=50, tokens=tokens).requests for number in one.prompt}
    assert drawn <= set(range(512)) - set(range(256, 261)) and len(drawn) > 300


def test_text_has_exactly_the_tokens_that_were_asked_for(tokens: Tokens) -> None:
    lengths = RandomLengths(40, 8, 0.5, 10)
    requests = made(num_prompts=50, as_text=True, tokens=tokens, lengths=lengths).requests
    assert all(isinstance(one.prompt, str) and tokens.count(one.prompt) == one.prompt_tokens for one in requests)
    assert len({one.prompt[:10] for one in requests}) == 1 and len({one.prompt[:14] for one in requests}) > 40


def test_text_of_a_vocabulary_with_merges_has_exactly_the_tokens_too(tmp_path: Path) -> None:
    script = [" the", " cat", "cat", "th", " a", "at", "ca"]
    tokens = Tokens(successor_checkpoint(tmp_path, script))
    requests = made(num_prompts=50, as_text=True, tokens=tokens, lengths=RandomLengths(33, 1, 0.9, 0)).requests
    assert all(tokens.count(str(one.prompt)) == one.prompt_tokens for one in requests)


def test_text_needs_a_tokenizer() -> None:
    with pytest.raises(DatasetError, match="--tokenizer"):
        made(as_text=True)


@pytest.mark.parametrize("name", ["random", "prefix_repetition"])
def test_the_same_seed_makes_the_same_requests_and_none_of_them_warms_up(name: str) -> None:
    lengths: Any = RandomLengths(24, 8, 0.5, 4) if name == "random" else Repetition(16, 8, 2, 4)
    first, again, other = (made(name, lengths=lengths, warmups=2, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    prefixes_of_run = {tuple(one.prompt[:4]) for one in first.requests}
    assert len(first.warmups) == 2 and prefixes_of_run.isdisjoint(tuple(one.prompt[:4]) for one in first.warmups)


def test_a_file_with_too_few_prompts_is_asked_again_unless_this_is_off(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"prompt": "b\u2028c", "output_tokens": 4}\n')
    many: Workload = made("custom", path=path, num_prompts=7, output_len=2, warmups=3)
    assert len(many.requests) == 7 and {one.prompt for one in many.requests} == {"a", "b\u2028c"}
    assert len(many.warmups) == 3
    few = made("custom", path=path, num_prompts=7, output_len=2, oversample=False)
    assert len(few.requests) == 2


def test_a_sharegpt_file_gives_the_first_question_and_answer(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    said = [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}, {"from": "human", "value": "three"}]
    path.write_text(json.dumps([{"conversations": said}, {"conversations": said[:1]}, {"id": 1}]))
    assert read_sharegpt(path) == [Turn("one", "two")]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sharegpt", "{", "not JSON"),
        ("sharegpt", "{}", "expected a JSON list"),
        ("sharegpt", '[{"conversations": [{"value": 1}, {"value": "x"}]}]', "entry 0"),
        ("sharegpt", "[]", "nothing that could be asked"),
        ("custom", "", "nothing that could be asked"),
        ("custom", '{"prompt": "a"}\n{"prompt": ""}', "line 2"),
        ("custom", '{"prompt": "a"}\n[1]', "line 2"),
        ("custom", '{"prompt": "a", "output_tokens": true}', "line 1: output_tokens"),
        ("custom", "nonsense", "line 1: not JSON"),
        ("custom", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_line(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    path = tmp_path / "dataset"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DatasetError, match=said) as caught:
        made(name, path=path, output_len=4)
    assert str(caught.value).startswith(f"--dataset-path {path}")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dataset"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="--dataset-path"):
        read_custom(path)


@pytest.mark.parametrize("content", [None, "{", '{"model": null}'])
def test_a_folder_without_a_usable_tokenizer_is_refused_by_the_file(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokens(tmp_path)


def test_a_vocabulary_without_words_is_refused(tmp_path: Path) -> None:
    folder = successor_checkpoint(tmp_path)
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["vocab"] = {"!": 0, "?": 1}
    (folder / "tokenizer.json").write_text(json.dumps(described | {"added_tokens": []}))
    with pytest.raises(DatasetError, match="--tokenizer"):
        Words(Tokens(folder), Random(0))
