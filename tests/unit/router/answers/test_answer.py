"""The totals of an answer: each prompt is counted once, each generation of it by itself."""

from typing import Any

import pytest

from octavo.router.answers.answer import Answer
from octavo.router.answers.delta import Usage
from octavo.router.answers.generation import Generation
from octavo.router.answers.tally import Tally
from octavo.router.jobs.generation import LENGTH, NOT_FINISHED


class Writer:
    """An AnswerWriter that keeps the totals."""

    usage: Usage | None = None

    def text(self, *_: object) -> None: ...

    def finish(self, *_: object) -> None: ...

    def end(self, usage: Usage) -> None:
        self.usage = usage


class Letters:
    """A Detokeniser: each token is a letter."""

    def push(self, ids: Any) -> str:
        return "x" * len(ids)

    def flush(self) -> str:
        return ""


@pytest.mark.parametrize(("prompts", "copies"), [(1, 1), (1, 2), (2, 3)])
async def test_the_cached_tokens_of_a_prompt_are_counted_once_however_many_answers_it_gets(
    prompts: int, copies: int
) -> None:
    writer = Writer()
    answer = Answer(writer, 10 * prompts, Tally(), lambda: None, copies)  # type: ignore[arg-type]  # a fake
    generations = [answer.join(Generation(answer, Letters, ())) for _ in range(prompts * copies)]
    for generation in generations:
        generation.tokens((1, 2), NOT_FINISHED, 8)
        generation.tokens((3,), LENGTH, 0)
    assert answer.done.done() and writer.usage == Usage(10 * prompts, 3 * prompts * copies, 8 * prompts)
    assert answer.tally.cached_tokens == 8 * prompts * copies, "what the engines have saved"
