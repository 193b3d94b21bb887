"""A router process that does not answer is found, and one whose parent was held up itself is not blamed."""

import pytest

from octavo.router.process.rules.liveness import ProcessLiveness
from octavo.shared.liveness import ROUTER

NEW = ProcessLiveness.begun(0.0)


def looked(silence: ProcessLiveness, *moments_s: float) -> ProcessLiveness:
    """Asked at the first moment, without an answer at the others."""
    silence = silence.asked(moments_s[0])
    for moment_s in moments_s[1:]:
        silence = silence.unanswered(moment_s)
    return silence


def seconds(begin: float, count: float) -> list[float]:
    return [begin + step for step in range(int(count) + 1)]


def test_a_process_that_stops_answering_is_found_after_its_time() -> None:
    answered = NEW.answered(100.0)
    assert answered.verdict is None and looked(answered, *seconds(500.0, ROUTER.silence_s)).verdict is None
    verdict = looked(answered, *seconds(500.0, ROUTER.silence_s + 1)).verdict
    assert verdict is not None and "7 s" in verdict


def test_the_time_between_an_answer_and_the_next_question_is_no_silence() -> None:
    assert looked(NEW.answered(100.0), 5_000.0, 5_001.0).verdict is None


def test_one_that_starts_has_longer() -> None:
    assert looked(NEW, *seconds(0.0, ROUTER.silence_s * 2)).verdict is None
    assert looked(NEW, *seconds(0.0, ROUTER.starting_s + 1)).verdict is not None


@pytest.mark.parametrize("late_s", [ROUTER.late_check_s + 0.1, 3_600.0])
def test_a_parent_that_was_held_up_restarts_the_time(late_s: float) -> None:
    silence = looked(NEW.answered(0.0), *seconds(10.0, ROUTER.silence_s - 1))
    resumed_s = silence.presence.checked_s + late_s
    silence = silence.unanswered(resumed_s)
    assert silence.verdict is None
    for moment_s in seconds(resumed_s, ROUTER.silence_s)[1:]:
        silence = silence.unanswered(moment_s)
        assert silence.verdict is None
    assert silence.unanswered(resumed_s + ROUTER.silence_s + 1).verdict is not None
