"""The right answers to a soak's prompts, computed apart from any server and loaded by nothing else.

Greedy answers are the engine's in one process, each prompt alone, and transformers confirms each in float32; it
also gives the log-probabilities, and how far the likeliest token is clear of the next. Drawn answers are the engine's
alone, as far as they are the same at a temperature a little lower and one a little higher. Answers that are
bound to a form are transformers'.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.soak.forms import FORMS, Form
from support.soak.model import ids_of
from support.soak.prompts import Prompt

GREEDY, DRAWN, COPIES = 160, 32, 2  # tokens of an answer; drawn answers of a prompt
CLEAR = 1e-3  # by which a log-probability must exceed the next to be sure
SHORT = 200  # tokens of a prompt that forms are asked with: each character of an answer costs a pass over it
TEMPERATURE, NEAR = 0.9, 1e-4
# Two ways of drawing: plain, and with everything that changes logits before the draw.
PLAIN: dict[str, Any] = {}
ADJUSTED: dict[str, Any] = {
    "top_k": 40, "top_p": 0.95, "min_p": 0.01, "presence_penalty": 0.4, "frequency_penalty": 0.2,
    "repetition_penalty": 1.1,
}  # fmt: skip
WAYS = (PLAIN, ADJUSTED)


@dataclass(frozen=True, slots=True)
class Known:
    """Of one prompt. seed: of its drawn answers, one more for each copy. greedy: ids, as far as they are sure, and
    their log-probabilities. drawn[way][copy]: ids, as far as they are sure. forms: the text by the form's name; none
    of a long prompt, empty where it is not sure."""

    seed: int
    greedy: tuple[int, ...]
    logprobs: tuple[float, ...]
    drawn: tuple[tuple[tuple[int, ...], ...], ...]
    forms: dict[str, str]


def learn(folder: Path, prompts: Sequence[Prompt]) -> list[Known]:
    """folder: the checkpoint's. Raises RuntimeError where the engine and transformers differ."""
    from support.soak.reference import Reference  # PyTorch and transformers: seconds, which a kept truth saves

    reference = Reference(folder)
    return [_known(reference, prompt) for prompt in prompts]


def kept(path: Path | None, folder: Path, prompts: Sequence[Prompt]) -> list[Known]:
    """The truth that `path` holds of these prompts; else it is computed, and kept there."""
    asked = [list(prompt.ids) for prompt in prompts]
    if path is not None and path.exists():
        content = json.loads(path.read_text())
        if content["prompts"] == asked:
            return [_from_json(one) for one in content["known"]]
    known = learn(folder, prompts)
    if path is not None:
        path.write_text(json.dumps({"prompts": asked, "known": [asdict(one) for one in known]}))
    return known


def _known(reference: Any, prompt: Prompt) -> Known:
    ids = reference.greedy(prompt.ids, GREEDY)
    logprobs, gaps, likeliest = reference.judged(prompt.ids, ids)
    sure = next((index for index, gap in enumerate(gaps) if gap < CLEAR), len(ids))
    if likeliest[:sure] != ids[:sure]:
        raise RuntimeError(f"prompt {prompt.index}: the engine continues with {ids[:sure]}, transformers {likeliest}")
    drawn = tuple(tuple(_drawn(reference, prompt, way, copy) for copy in range(COPIES)) for way in WAYS)
    forms = {form.name: _bound(reference, prompt, form) for form in FORMS if len(prompt.ids) <= SHORT}
    return Known(prompt.seed, tuple(ids[:sure]), tuple(logprobs[:sure]), drawn, forms)


def _drawn(reference: Any, prompt: Prompt, way: dict[str, Any], copy: int) -> tuple[int, ...]:
    near = (TEMPERATURE * (1 - NEAR), TEMPERATURE * (1 + NEAR))
    low, high = (reference.drawn(prompt.ids, DRAWN, temperature, prompt.seed + copy, way) for temperature in near)
    sure = next((at for at in range(DRAWN) if low[at] != high[at]), DRAWN)
    return tuple(low[:sure])


def _bound(reference: Any, prompt: Prompt, form: Form) -> str:
    """Empty where two characters are nearly as likely somewhere: the answer is not sure."""
    text = ""
    while allowed := sorted(form.following(text)):
        if len(allowed) == 1:
            text += allowed[0]
            continue
        logprobs = reference.next([*prompt.ids, *ids_of(text)])
        best, second = sorted((logprobs[ids_of(one)[0]], one) for one in allowed)[-1:-3:-1]
        if best[0] - second[0] < CLEAR:
            return ""
        text += best[1]
    return text


def _from_json(one: dict[str, Any]) -> Known:
    drawn = tuple(tuple(tuple(ids) for ids in way) for way in one["drawn"])
    return Known(one["seed"], tuple(one["greedy"]), tuple(one["logprobs"]), drawn, one["forms"])
