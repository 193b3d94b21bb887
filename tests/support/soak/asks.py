"""What a client asks for, and what is right to answer: drawn from a seed."""

import random
from dataclasses import dataclass, replace
from typing import Any

from support.soak.forms import FORMS
from support.soak.model import TEXTS
from support.soak.prompts import Prompt
from support.soak.truth import COPIES, TEMPERATURE, WAYS, Known

LONG_S, SHORT_S = 30.0, (0.05, 0.3, 1.0, 4.0)  # of requests' deadlines
CUT_AT = 5  # tokens of a form's answer; none is that long, or it would be whole and cut at once
# Kinds of requests, and of each how many in so many: drawn has a seed, expiring a short deadline; the client of leaving
# goes away in mid-answer, that of slow takes its time to read.
WEIGHTS = {"greedy": 50, "drawn": 14, "form": 8, "bad": 8, "expiring": 6, "leaving": 9, "slow": 5}


@dataclass(frozen=True, slots=True)
class Choice:
    """The right text of one choice. counted: tokens that the usage counts; logprobs: theirs, as far as they are known;
    stop: the string behind the text that ended it."""

    text: str
    finish: str
    counted: int
    logprobs: tuple[float, ...] = ()
    stop: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request. choices: none of a bad body, of which `refused` are the right statuses. usage, ids, scores: whether
    the answer has these. caching: whether its prompt may be found in a cache. leave_after: events of the stream that a
    client reads before it goes away; pauses: whether it reads slowly."""

    kind: str
    path: str
    body: dict[str, Any] | bytes  # Any: JSON
    deadline_s: float
    choices: tuple[Choice, ...] = ()
    refused: frozenset[int] = frozenset()
    prompt_tokens: int = 0
    stream: bool = False
    usage: bool = True
    ids: bool = False
    scores: bool = False
    caching: bool = True
    leave_after: int | None = None
    pauses: bool = False

    def within(self, deadline_s: float) -> "Ask":
        """The same request with another deadline."""
        assert isinstance(self.body, dict), "a bad body has no deadline"
        return replace(self, deadline_s=deadline_s, body=self.body | {"timeout": deadline_s})


@dataclass(frozen=True, slots=True)
class Subject:
    """What requests are drawn of."""

    prompts: tuple[Prompt, ...]
    known: tuple[Known, ...]
    caching: bool

    def draw(self, draw: random.Random, kind: str) -> Ask:
        """kind: of WEIGHTS, but for `bad`."""
        index = draw.randrange(len(self.prompts))
        prompt, known = self.prompts[index], self.known[index]
        stream = kind in ("leaving", "slow") or draw.random() < 0.5
        deadline_s = draw.choice(SHORT_S) if kind == "expiring" else LONG_S
        answered = {"form": _form, "drawn": _drawn}.get(kind, _greedy)
        fields, choices = answered(draw, known)
        usage = not stream or draw.random() < 0.7
        scores = kind != "form" and draw.random() < 0.2
        ids = draw.random() < 0.3
        body = prompt.fields | fields | {"timeout": deadline_s, "n": len(choices), "stream": stream}
        body |= _scores(draw, prompt.chat) if scores else {}
        body |= {"return_token_ids": True} if ids else {}
        body |= {"stream_options": {"include_usage": True}} if stream and usage else {}
        return Ask(
            kind, prompt.path, body, deadline_s, choices, prompt_tokens=len(prompt.ids), stream=stream, usage=usage,
            ids=ids, scores=scores, caching=self.caching, pauses=kind == "slow",
            leave_after=draw.randint(0, 40) if kind == "leaving" else None,
        )  # fmt: skip


def _greedy(draw: random.Random, known: Known) -> tuple[dict[str, Any], tuple[Choice, ...]]:
    limit = min(len(known.greedy), draw.choice((1, 2, 16, draw.randint(1, 300), draw.randint(1, 300))))
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": limit, "ignore_eos": True}
    stop = ""
    if draw.random() < 0.3:
        text = "".join(TEXTS[one] for one in known.greedy[:limit])
        at = draw.randrange(max(len(text), 1))
        stop = text[at : at + draw.randint(1, 3)]
    if stop:
        fields["stop"] = [stop, "\n\n\n"]
    choice = shown(known.greedy[:limit], stop, known.logprobs)
    return fields, (choice,) * draw.choice((1, 1, 1, 2, 3))


def _drawn(draw: random.Random, known: Known) -> tuple[dict[str, Any], tuple[Choice, ...]]:
    way = draw.randrange(len(WAYS))
    copies = known.drawn[way][: draw.randint(1, COPIES)]
    limit = min(draw.randint(1, 64), *map(len, copies)) if len(copies) > 1 else min(draw.randint(1, 64), len(copies[0]))
    if limit == 0:  # the first token is not sure
        return _greedy(draw, known)
    fields = {"temperature": TEMPERATURE, "max_tokens": limit, "ignore_eos": True, "seed": known.seed} | WAYS[way]
    return fields, tuple(shown(ids[:limit]) for ids in copies)


def _form(draw: random.Random, known: Known) -> tuple[dict[str, Any], tuple[Choice, ...]]:
    sure = [form for form in FORMS if known.forms.get(form.name)]
    if not sure:
        return _greedy(draw, known)
    form = draw.choice(sure)
    text, limit = known.forms[form.name], draw.choice((CUT_AT, 60))
    ended = limit > len(text)
    choice = Choice(text, "stop", len(text)) if ended else Choice(text[:limit], "length", limit)
    return form.fields | {"temperature": 0, "max_tokens": limit}, (choice,)


def _scores(draw: random.Random, chat: bool) -> dict[str, Any]:
    return {"logprobs": True, "top_logprobs": 1} if chat else {"logprobs": draw.choice((0, 2))}


def shown(ids: tuple[int, ...], stop: str = "", logprobs: tuple[float, ...] = ()) -> Choice:
    """The text of ids up to the stop string; the tokens up to the one that completes it are counted."""
    text = "".join(TEXTS[one] for one in ids)
    at = text.find(stop) if stop else -1
    if at < 0:
        return Choice(text, "length", len(ids), logprobs[: len(ids)])
    counted, length = 0, 0
    while length < at + len(stop):
        length += len(TEXTS[ids[counted]])
        counted += 1
    return Choice(text[:at], "stop", counted, logprobs[:counted], stop)
