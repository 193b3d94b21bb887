"""What a soak asks for, and what it holds to be right."""

import random

from support.soak.asks import CUT_AT, WEIGHTS, Subject, shown
from support.soak.forms import FORMS
from support.soak.model import CHARACTERS, EOS, TEXTS, VOCABULARY, ids_of
from support.soak.prompts import LONGEST, prompts
from support.soak.truth import COPIES, WAYS, Known

WORD = next(index for index, text in enumerate(TEXTS) if len(text) > 1)


def test_each_id_has_a_text_and_each_character_an_id() -> None:
    assert len(TEXTS) == VOCABULARY and TEXTS[EOS] == ""
    assert "".join(TEXTS[one] for one in ids_of(CHARACTERS)) == CHARACTERS


def test_a_stop_string_ends_the_text_before_it_and_the_tokens_behind_it() -> None:
    ids = (*ids_of("ab"), EOS, *ids_of("cde"), WORD)
    whole, stopped = shown(ids), shown(ids, "cd", (-1.0,) * 7)
    assert (whole.text, whole.finish, whole.counted) == ("abcde" + TEXTS[WORD], "length", 7)
    assert (stopped.text, stopped.finish, stopped.counted, len(stopped.logprobs)) == ("ab", "stop", 5, 5)
    assert shown(ids, TEXTS[WORD][:2]).counted == 7 and shown(ids, "zz") == whole


def test_prompts_share_prefixes_and_fit_into_the_context() -> None:
    found = prompts(24, 1)
    assert found == prompts(24, 1) != prompts(24, 2)
    assert {prompt.chat for prompt in found} == {True, False}
    assert max(len(prompt.ids) for prompt in found) <= LONGEST
    heads = [prompt.ids[:150] for prompt in found if len(prompt.ids) >= 150]
    assert len(set(heads)) < len(heads)


def test_no_answer_of_a_form_begins_another_or_is_as_long_as_the_cut() -> None:
    for form in FORMS:
        assert all(not form.following(answer) and len(answer) != CUT_AT for answer in form.answers)
        text = ""
        while following := form.following(text):
            text += min(following)
        assert text in form.answers


def test_every_kind_is_drawn_with_right_answers_that_are_as_long_as_it_asks() -> None:
    greedy = tuple(ids_of("the quick brown fox jumps over it"))
    drawn = ((greedy[:20],) * COPIES,) * len(WAYS)
    known = Known(7, greedy, (-1.0,) * len(greedy), drawn, {form.name: min(form.answers) for form in FORMS})
    found = prompts(2, 1)
    subject, draw = Subject(tuple(found), (known, known), True), random.Random(1)
    for kind in [*WEIGHTS, *WEIGHTS] * 20:
        if kind == "bad":
            continue
        ask = subject.draw(draw, kind)
        assert ask.kind == kind and isinstance(ask.body, dict) and ask.body["n"] == len(ask.choices)
        assert all(0 < one.counted <= ask.body["max_tokens"] for one in ask.choices)
        assert (ask.leave_after is not None, ask.pauses) == (kind == "leaving", kind == "slow")
