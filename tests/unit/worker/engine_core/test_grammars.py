"""A real grammar library behind our names: what is compiled, what is refused, and which ids masks allow."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from support.models.checkpoints import random_checkpoint

from octavo.router.constrained.grammars import grammar
from octavo.router.openai_api.structured import Structured
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.engine_core.admission import Admission
from octavo.worker.engine_core.grammars import GrammarInvalid, Grammars, Masker, grammars_of, mask_bytes
from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import Invalid, NewRequest
from octavo.worker.messages.step import Masks
from octavo.worker.runner.cpu.masks import bind
from octavo.worker.scheduler.scheduler import Scheduler

VOCABULARY = 512


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Grammars:
    return grammars_of(random_checkpoint(tmp_path_factory.mktemp("model") / "random"))


def choice(*texts: str) -> str:
    return grammar(Structured("choice", json.dumps(texts), "guided_choice"))


def allowed(bits: bytes) -> set[int]:
    logits = torch.zeros(1, VOCABULARY)
    bind(logits, (0,), Masks(1, bits), 0)
    return set((logits[0] == 0).nonzero().squeeze(1).tolist())


def ids(grammars: Grammars, text: str) -> list[int]:
    assert grammars._tokenizer is not None
    return list(grammars._tokenizer.tokenize_str(text))


def test_a_mask_allows_what_may_follow_and_after_the_end_only_the_end(grammars: Grammars) -> None:
    masker, matcher = Masker(VOCABULARY), grammars.begin(choice("ab", "ac")).result()
    for text, then in (("a", {"b", "c"}), ("b", set())):
        matcher.take(ids(grammars, text))
        found = allowed(masker.fill([matcher]))
        assert {ids(grammars, one)[0] for one in then} <= found
        assert ids(grammars, "z")[0] not in found
    assert len(found) == 1, "the end of the sequence"


def test_a_matcher_that_was_led_astray_says_so(grammars: Grammars) -> None:
    matcher = grammars.begin(choice("ab")).result()
    assert not matcher.broken
    matcher.take(ids(grammars, "z"))
    assert matcher.broken


def test_rows_without_a_matcher_allow_every_id(grammars: Grammars) -> None:
    matcher = grammars.begin(choice("x")).result()
    bits = Masker(VOCABULARY).fill([None, matcher])
    assert len(bits) == 2 * mask_bytes(VOCABULARY)
    assert allowed(bits[: mask_bytes(VOCABULARY)]) == set(range(VOCABULARY))
    assert ids(grammars, "x")[0] in allowed(bits[mask_bytes(VOCABULARY) :])


def test_two_requests_with_one_grammar_go_their_own_ways(grammars: Grammars) -> None:
    text = choice("ab", "cd")
    first, second = grammars.begin(text).result(), grammars.begin(text).result()
    first.take(ids(grammars, "a"))
    assert Masker(VOCABULARY).fill([first]) != Masker(VOCABULARY).fill([second])


@pytest.mark.parametrize(("first", "columns"), [(0, 256), (256, 256), (384, 200), (251, 6), (3, 509)])
def test_a_rank_that_has_part_of_the_vocabulary_binds_its_own_columns(first: int, columns: int) -> None:
    bits = bytearray(mask_bytes(VOCABULARY))
    for token in (3, 255, 256, 400, 511):
        bits[token // 8] |= 1 << token % 8
    logits = torch.zeros(2, columns)
    bind(logits, (1,), Masks(1, bytes(bits)), first)
    assert bool((logits[0] == 0).all()), "another row is not touched"
    kept = {first + column for column in (logits[1] == 0).nonzero().squeeze(1).tolist()}
    assert kept == {token for token in (3, 255, 256, 400, 511) if first <= token < first + columns}


def test_what_is_forbidden_is_never_drawn_and_what_is_allowed_stays_what_it_is() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, VOCABULARY)
    logits[:, :6] = torch.tensor([float("nan"), float("inf"), -float("inf")]).repeat_interleave(2)
    allowed = torch.rand(3, VOCABULARY) < 0.5
    allowed[:, :6] = torch.tensor([False, True]).repeat(3)
    bits = np.packbits(allowed.numpy(), axis=1, bitorder="little").tobytes()
    bound = logits.clone()
    bind(bound, (0, 1, 2), Masks(1, bits), 0)
    assert bool((bound[~allowed] == -float("inf")).all())
    assert not bool(torch.isfinite(bound[:, 1]).any()), "a NaN that is allowed still fails its request"
    sound = allowed & ~logits.isnan()
    assert torch.equal(bound[sound], logits[sound])


def test_masks_beside_a_gpu_equal_masks_beside_a_cpu(grammars: Grammars) -> None:
    matchers = [grammars.begin(choice(text)).result() for text in ("ab", "b", "a")]
    matchers[0].take(ids(grammars, "a"))
    matchers[1].take(ids(grammars, "z"))
    assert matchers[1].broken
    some = [matchers[0], None, matchers[1], matchers[2]]
    assert Masker(VOCABULARY, "cuda").fill(some) == Masker(VOCABULARY, "cpu").fill(some)


def test_a_grammar_that_cannot_be_compiled_is_refused_with_its_reason(grammars: Grammars) -> None:
    with pytest.raises(GrammarInvalid, match=r"\w"):
        grammars.begin('{"grammars": [{"lark_grammar": "start: other"}]}').result()


def test_without_a_usable_tokenizer_every_grammar_is_refused_and_nothing_else(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path / "random")
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(GrammarInvalid, match="tokenizer"):
        grammars_of(folder).begin(choice("a"))


def new(key: int, grammar: str, prompt: Sequence[int] = (1, 2)) -> NewRequest:
    return NewRequest(key, tuple(prompt), SamplingParams(), 8, grammar=grammar)


def admission(grammars: Grammars) -> tuple[Admission, Scheduler]:
    scheduler = Scheduler(Limits(blocks=8, block_size=16, max_batch_tokens=64, max_requests=4, context_length=64))
    return Admission(scheduler, grammars, Masker(VOCABULARY)), scheduler


def wait(grammars: Grammars) -> None:
    """Until a compilation has ended."""
    os.set_blocking(grammars.finished, True)
    os.eventfd_read(grammars.finished)
    os.set_blocking(grammars.finished, False)


def test_every_request_is_settled_once_and_counted_as_received(grammars: Grammars) -> None:
    door, scheduler = admission(grammars)
    door.submit(new(1, ""))
    door.submit(new(2, choice("unheard of")))
    door.submit(new(3, "nonsense"))
    door.submit(new(4, choice("unheard of too"), prompt=range(100)))
    door.submit(new(5, choice("forgotten")))
    door.cancel(5)
    settled: dict[int, Invalid | None] = {}
    while len(settled) < 4:
        for request, why in door.settled():
            assert request.key not in settled
            settled[request.key] = why
        if len(settled) < 4:
            wait(grammars)
    assert settled[1] is None and settled[2] is None
    assert getattr(settled[3], "field", None) == "response_format"
    assert getattr(settled[4], "field", None) == "prompt", "it does not fit the context"
    assert scheduler.load().received == 5, "credit counts them in order"
    step = scheduler.schedule()
    assert step is not None
    assert door.constraints.mark(step, scheduler.sampled()).sample.masked == (1,)
