"""Greedy text is that of transformers, token by token, however the engine cuts, shares and repeats the work."""

import pytest
from support.models.subject import BOUNDARIES, TOKENS, Subject
from support.worker.engine import Answer, LocalEngine

pytestmark = pytest.mark.timeout(1800)  # the first test of a model asks transformers; busy machines take tenfold


def texts(engine: LocalEngine, subject: Subject, prompts: list[list[int]]) -> list[list[int]]:
    return [answer.ids for answer in engine.generate(prompts, TOKENS, stop_ids=subject.eos_ids)]


def test_a_request_alone_gives_the_text_of_transformers(subject: Subject) -> None:
    engine = LocalEngine(subject.runner)
    assert [texts(engine, subject, [prompt])[0] for prompt in subject.prompts] == subject.answers
    assert engine.largest_batch == 1


def test_a_batch_of_32_of_mixed_lengths_gives_the_text_of_transformers(subject: Subject) -> None:
    """It gave the answers, of which transformers has confirmed each before any test began."""
    assert subject.largest_batch == 32
    lengths = {len(prompt) for prompt in subject.prompts}
    assert len(lengths) > 10 and max(lengths) > 10 * min(lengths)


def test_chunked_prefill_beside_decoding_gives_the_text_of_transformers(subject: Subject) -> None:
    engine = LocalEngine(subject.runner, max_batch_tokens=29)
    assert texts(engine, subject, subject.prompts) == subject.answers


def test_preempted_requests_give_the_text_of_transformers(subject: Subject) -> None:
    longest = max(len(prompt) for prompt in subject.prompts) + TOKENS
    engine = LocalEngine(subject.runner, blocks=2 * -(-longest // 16))  # of the twenty several run, and lose it
    assert texts(engine, subject, subject.prompts) == subject.answers
    assert engine.scheduler.load().preemptions > 0


@pytest.fixture(scope="module")
def thrice(subject: Subject) -> dict[int, list[Answer]]:
    """Of each boundary: the prompt asked for the first time, for one token; then, from the cache, it again and with
    another end."""
    engine = LocalEngine(subject.runner)
    first = engine.generate([subject.prefixed[size][0] for size in BOUNDARIES], 1, stop_ids=subject.eos_ids)
    pairs = [prompt for size in BOUNDARIES for prompt in subject.prefixed[size]]
    rest = iter(engine.generate(pairs, TOKENS, stop_ids=subject.eos_ids))
    return {size: [one, next(rest), next(rest)] for size, one in zip(BOUNDARIES, first, strict=True)}


@pytest.mark.parametrize("size", BOUNDARIES)
def test_a_prefix_from_the_cache_gives_the_text_of_transformers(
    subject: Subject, thrice: dict[int, list[Answer]], size: int
) -> None:
    first, again, other = thrice[size]
    expected, expected_other = subject.prefixed_answers[size]
    assert (first.ids, again.ids, other.ids) == (expected[:1], expected, expected_other)
    assert first.cached == 0
    assert again.cached == (size - 1) // 16 * 16, "the last token is always computed"
    assert other.cached == size // 16 * 16
