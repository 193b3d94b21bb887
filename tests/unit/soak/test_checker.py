"""Each promise that a soak checks is found broken in a history in which it is broken, and in no other."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.patience import PATIENCE_S
from support.soak.asks import Ask, Choice
from support.soak.checker import HELD_S, TOO_SLOW, Broken, Disturbed, Rules, Window, check, check_final
from support.soak.history import DONE, ERROR, Entry, Part, Received

TEXT, SCORES = "abcdef", (-0.5, -1.0, -1.5, -2.0, -2.5, -3.0)
ASK = Ask(
    "greedy", "/v1/completions", {"prompt": "x"}, 30.0, (Choice(TEXT, "length", 6, SCORES),) * 2, prompt_tokens=10,
    stream=True, ids=True, scores=True,
)  # fmt: skip
BAD = Ask("bad", "/v1/completions", b"{", 30.0, refused=frozenset({400}))
RULES = Rules()


def answered() -> Received:
    """All right."""
    parts = {index: Part(TEXT, ["length"], [1] * 6, list(SCORES)) for index in range(2)}
    usage = {"prompt_tokens": 10, "completion_tokens": 12, "total_tokens": 22}
    return Received(200, parts, [usage | {"prompt_tokens_details": {"cached_tokens": 8}}], [DONE])


def cut(code: str = "stream_cut") -> Received:
    """After half of the first choice."""
    part = Part("abc", [], [1] * 3, list(SCORES[:3]))
    return Received(200, {0: part}, [], [ERROR], code, "lost")


def refused(status: int, code: str) -> Received:
    return Received(status, code=code, message="why")


def entry(received: Received, ask: Ask = ASK, took_s: float = 10.0, calm_s: float = 10.0, lag_s: float = 0.0) -> Entry:
    return Entry(7, ask, received, 100.0, 100.0 + took_s, calm_s, lag_s)


def broken(one: Entry, rules: Rules = RULES) -> list[Broken]:
    return [violation.broken for violation in check([one], rules)]


def spoilt(change: Callable[[Received], object], ask: Ask = ASK, base: Callable[[], Received] = answered) -> Entry:
    received = base()
    change(received)
    return entry(received, ask)


GOOD = {
    "whole": entry(answered()),
    "cut by a lost group": entry(cut()),
    "cut by its deadline": entry(cut("deadline_exceeded")),
    "expired": entry(refused(504, "deadline_exceeded")),
    "shed": entry(refused(429, "queue_full")),
    "lost twice": entry(refused(500, "engine_lost_twice")),
    "left by its client": spoilt(lambda got: (setattr(got, "left", True), got.endings.clear()), base=answered),
    "a bad body is refused": entry(refused(400, "invalid_json"), BAD),
    "a bad body is shed": entry(refused(503, "draining"), BAD),
    "too slow on a busy machine": entry(refused(400, TOO_SLOW)),
    "held up by the client": entry(answered(), took_s=36.0, lag_s=2.0),
    # What was held back as the beginning of a stop string comes out when the answer is cut.
    "cut within a stop string": entry(cut(), replace(ASK, choices=(Choice("ab", "stop", 4, SCORES[:4], "cd"),) * 2)),
}


@pytest.mark.parametrize("one", GOOD.values(), ids=list(GOOD))
def test_what_may_happen_breaks_nothing(one: Entry) -> None:
    assert check([one], RULES) == []


WRONG: dict[str, tuple[Entry, Broken]] = {
    "given up": (spoilt(lambda got: setattr(got, "given_up", True)), Broken.LATE),
    "after its deadline": (entry(answered(), took_s=35.1), Broken.LATE),
    "refused after its deadline": (entry(refused(504, "deadline_exceeded"), took_s=35.1), Broken.LATE),
    "a connection breaks": (spoilt(lambda got: setattr(got, "broken", "reset"), base=Received), Broken.LOST),
    "a stream just ends": (spoilt(lambda got: got.endings.clear(), base=cut), Broken.SILENT),
    "done twice": (spoilt(lambda got: got.endings.append(DONE)), Broken.TWICE),
    "an error, then done": (spoilt(lambda got: got.endings.append(DONE), base=cut), Broken.TWICE),
    "an internal error": (entry(refused(500, "internal_error")), Broken.STATUS),
    "a good request is bad": (entry(refused(400, "invalid_value")), Broken.STATUS),
    "a code of another status": (entry(refused(500, "queue_full")), Broken.STATUS),
    "an event with an internal error": (entry(cut("internal_error")), Broken.STATUS),
    "a bad body is answered": (entry(Received(200), BAD), Broken.BAD_BODY),
    "a bad body is an error of ours": (entry(refused(500, "internal_error"), BAD), Broken.BAD_BODY),
    "another token": (spoilt(lambda got: setattr(got.parts[0], "text", "abcdeX")), Broken.TEXT),
    "another token before a cut": (spoilt(lambda got: setattr(got.parts[0], "text", "abX"), base=cut), Broken.TEXT),
    "more than was asked for": (spoilt(lambda got: setattr(got.parts[1], "text", "abcdefg")), Broken.TEXT),
    "too short": (spoilt(lambda got: setattr(got.parts[0], "text", "abcde")), Broken.FINISH),
    "another reason": (spoilt(lambda got: setattr(got.parts[0], "finish", ["stop"])), Broken.FINISH),
    "no reason": (spoilt(lambda got: got.parts[1].finish.clear()), Broken.FINISH),
    "a choice is missing": (spoilt(lambda got: got.parts.pop(1)), Broken.FINISH),
    "a token id is missing": (spoilt(lambda got: got.parts[0].ids.pop()), Broken.FINISH),
    "another log-probability": (spoilt(lambda got: got.parts[0].logprobs.__setitem__(2, -1.51)), Broken.SCORES),
    "a log-probability of a cut answer": (
        spoilt(lambda got: got.parts[0].logprobs.__setitem__(2, float("nan")), base=cut),
        Broken.SCORES,
    ),
    "a log-probability is missing": (spoilt(lambda got: got.parts[0].logprobs.pop()), Broken.SCORES),
    "no usage": (spoilt(lambda got: got.usage.clear()), Broken.USAGE),
    "usage twice": (spoilt(lambda got: got.usage.append(got.usage[0])), Broken.USAGE),
    "usage that was not asked for": (entry(answered(), replace(ASK, usage=False)), Broken.USAGE),
    "too many tokens in the usage": (spoilt(lambda got: got.usage[0].update(completion_tokens=13)), Broken.USAGE),
    "another total": (spoilt(lambda got: got.usage[0].update(total_tokens=23)), Broken.USAGE),
    "cached without a cache": (entry(answered(), replace(ASK, caching=False)), Broken.USAGE),
    "a choice too many": (spoilt(lambda got: got.parts.__setitem__(2, Part())), Broken.FORMAT),
    "what no answer looks like": (spoilt(lambda got: got.malformed.append("half an event")), Broken.FORMAT),
}


@pytest.mark.parametrize(("one", "promise"), WRONG.values(), ids=list(WRONG))
def test_a_broken_promise_is_found(one: Entry, promise: Broken) -> None:
    assert broken(one) == [promise]


def test_all_choices_finish_and_then_an_error_comes() -> None:
    one = spoilt(lambda got: (got.endings.__setitem__(0, ERROR), setattr(got, "code", "stream_cut")))
    assert broken(one) == [Broken.TWICE]


def test_every_promise_has_a_history_that_breaks_it() -> None:
    assert {promise for _, promise in WRONG.values()} == set(Broken) - {Broken.FINAL}


def test_a_connection_may_break_only_while_its_router_is_away() -> None:
    one = spoilt(lambda got: setattr(got, "broken", "reset"), base=Received)
    silent = spoilt(lambda got: got.endings.clear(), base=cut)
    for window, right in ((Window(105.0, 200.0), []), (Window(90.0, 100.0), []), (Window(112.0, 120.0), None)):
        rules = Rules(disturbed=Disturbed(router=[window]))
        assert broken(one, rules) == (right if right is not None else [Broken.LOST])
        assert broken(silent, rules) == (right if right is not None else [Broken.SILENT])


def test_a_stopped_router_holds_its_connections_for_a_while_only() -> None:
    rules = Rules(disturbed=Disturbed(router=[Window(100.0, 200.0)]))
    assert broken(entry(answered(), took_s=34.0 + HELD_S), rules) == []
    assert broken(entry(answered(), took_s=36.0 + HELD_S), rules) == [Broken.LATE]


def test_a_helper_that_is_hit_refuses_no_request() -> None:
    one = entry(refused(400, TOO_SLOW))
    assert broken(one, Rules(disturbed=Disturbed(helper=[Window(109.0, 112.0)]))) == [Broken.STATUS]
    assert broken(one, Rules(disturbed=Disturbed(helper=[Window(112.0, 115.0)]))) == []


def test_a_busy_machine_makes_no_answer_late_where_others_use_it() -> None:
    patient = Rules(patient=True)
    assert broken(entry(answered(), took_s=60.0, calm_s=20.0), patient) == []
    assert broken(entry(answered(), took_s=60.0, calm_s=36.0), patient) == [Broken.LATE]
    assert broken(entry(answered(), took_s=36.0 + PATIENCE_S, calm_s=20.0), patient) == [Broken.LATE]


def test_at_the_end_each_request_is_answered() -> None:
    entries = [entry(answered()), entry(refused(503, "no_capacity")), entry(cut())]
    assert [(one.broken, one.what) for one in check_final(entries)] == [
        (Broken.FINAL, "503 no_capacity"),
        (Broken.FINAL, "200, then stream_cut"),
    ]
