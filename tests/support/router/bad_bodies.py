"""Bad requests by the thousand, each drawn from a seed: of shapes that gRPC can say too, of any JSON, of raw bytes."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Json = dict[str, Any]  # Any: JSON
Draw = Callable[[Random], object]

CONTEXT = 2048
TEXT: Json = {"model": "m", "prompt": "x", "max_tokens": 2}
CHAT: Json = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
LETTERS = 'ab é\u0000\U0001f336"\\\n<|im_end|>{{}}%s'


def text(draw: Random, low: int = 0, high: int = 12) -> str:
    return "".join(draw.choices(LETTERS, k=draw.randint(low, high)))


def outside(low: float, high: float) -> Draw:
    """A number of any size beyond [low, high]."""

    def number(draw: Random) -> float:
        beyond = draw.choice((1e-9, 1.0, 1e9, 1e300)) * (1 + draw.random())
        return draw.choice((low - beyond - abs(low) * 1e-6, high + beyond + abs(high) * 1e-6))

    return number


def of(*values: object) -> Draw:
    return lambda draw: draw.choice(values)


def spoilt(draw: Random, kinds: Sequence[Draw]) -> object:
    return draw.choice(kinds)(draw)


# What a message of the API can hold, and no server may accept. Each is refused whatever stands beside it.
BAD: dict[str, list[Draw]] = {
    "model": [lambda draw: "n" + text(draw)],
    "max_tokens": [lambda draw: draw.randint(-(2**31), 0), lambda draw: draw.randint(CONTEXT, 2**31 - 1)],
    "temperature": [outside(0, 2)],
    "top_p": [outside(0, 1), of(0)],
    "top_k": [lambda draw: draw.randint(-(2**31), -2)],
    "min_p": [outside(0, 1)],
    "presence_penalty": [outside(-2, 2)],
    "frequency_penalty": [outside(-2, 2)],
    "repetition_penalty": [outside(0, 2), of(0)],
    "min_tokens": [lambda draw: draw.randint(CONTEXT + 1, 2**32 - 1)],
    "stop": [
        lambda draw: [text(draw, 1), ""],
        lambda draw: [text(draw, 1)] * draw.randint(17, 40),
        lambda draw: draw.choice("aé") * draw.randint(257, 600),
    ],
    "stop_token_ids": [of([2**32 - 1]), lambda draw: [draw.randint(0, 99)] * draw.randint(65, 90)],
    "guided_json": [of("{", "[]", '{"type": "strange"}', '{"$ref": "#/nowhere"}', '{"not": {"type": "string"}}')],
    "guided_regex": [of("(", "[z-a]", "(?=x)y", "a{5,2}", "x" * 70_000)],
    "guided_grammar": [of("start: missing", "start", "::=", "root ::= root2")],
}
PROMPTS: list[Draw] = [
    of("", [], [""], ["", "x"], [[1], []]),
    lambda draw: [draw.randint(0, 99), draw.randint(10**6, 2**32 - 1)],
    lambda draw: [text(draw, 1)] * draw.randint(257, 300),
    lambda draw: [300] * draw.randint(CONTEXT, CONTEXT + 2000),
    lambda draw: "long " * draw.randint(2100, 2500),
]
MESSAGES: list[Draw] = [
    lambda draw: [{"role": "boss" + text(draw), "content": "x"}],
    lambda draw: [{"role": "user"}],
    lambda draw: [{"role": "user", "content": "x"}] * draw.randint(1, 9) + [{"role": "", "content": text(draw)}],
    lambda draw: [{"role": "user", "content": "x", "name": "n" * draw.randint(257, 900)}],
]
FINE: dict[str, list[Draw]] = {
    "max_tokens": [of(1, 2, 3)],
    "temperature": [lambda draw: draw.uniform(0, 2)],
    "top_p": [lambda draw: draw.uniform(0.01, 1)],
    "top_k": [of(-1, 0, 5, 2**31 - 1)],
    "min_p": [lambda draw: draw.random()],
    "seed": [lambda draw: draw.randint(-(2**63), 2**63 - 1)],
    "presence_penalty": [lambda draw: draw.uniform(-2, 2)],
    "stop": [lambda draw: ["zz" + text(draw)], lambda draw: "zz" + text(draw)],
    "stop_token_ids": [lambda draw: [draw.randint(600, 650)]],
    "ignore_eos": [of(True)],
}


def both(draw: Random) -> Json:
    """A body that HTTP and gRPC can say: one to three things wrong with it, others changed and fine."""
    body = dict(draw.choice((TEXT, CHAT)))
    for name in draw.sample(sorted(FINE), draw.randint(0, 3)):
        body[name] = spoilt(draw, FINE[name])
    own = ("prompt", PROMPTS) if "prompt" in body else ("messages", MESSAGES)
    names = draw.sample([*BAD, own[0]], draw.choice((1, 1, 1, 2, 3)))
    guided = [name for name in names if name.startswith("guided_")]
    for name in guided[1:] or (guided if draw.random() < 0.5 else ()):  # a grammar takes milliseconds
        names.remove(name)
    for name in names or ["max_tokens"]:
        body[name] = spoilt(draw, own[1] if name == own[0] else BAD[name])
    if any(name.startswith("guided_") for name in body):
        body.pop("ignore_eos", None)
    return body


def fine(draw: Random) -> Json:
    """A body that both protocols answer."""
    body = dict(draw.choice((TEXT, CHAT)))
    for name in draw.sample(sorted(FINE), draw.randint(0, 4)):
        body[name] = spoilt(draw, FINE[name])
    return body


JSON_VALUES: list[Draw] = [
    of(None, True, False, 0, -1, 1, 1.5, 2**63, -(2**63), 2**70, 1e308, "", "x", [], {}, [[]], [None], {"a": None}),
    lambda draw: text(draw),
    lambda draw: draw.uniform(-1e6, 1e6),
    lambda draw: [spoilt(draw, JSON_VALUES) for _ in range(draw.randint(0, 3))],
    lambda draw: {text(draw, 1, 5): spoilt(draw, JSON_VALUES) for _ in range(draw.randint(0, 3))},
]
POSTS: list[tuple[str, Json]] = [
    ("/v1/completions", TEXT),
    ("/v1/chat/completions", CHAT),
    ("/v1/responses", {"model": "m", "input": [{"role": "user", "content": "x"}], "max_output_tokens": 2}),
    ("/tokenize", {"prompt": "x"}),
    ("/detokenize", {"tokens": [1, 2]}),
]


def any_json(draw: Random, fields: Sequence[str]) -> tuple[str, bytes]:
    """Path and body: a good one with fields of any JSON. fields: names that the server knows."""
    path, good = draw.choice(POSTS)
    body = dict(good)
    for _ in range(draw.randint(1, 4)):
        name = draw.choice(fields) if draw.random() < 0.9 else text(draw, 1, 8)
        body[name] = spoilt(draw, JSON_VALUES)
    return path, json.dumps(body, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")


def any_bytes(draw: Random) -> tuple[str, bytes]:
    """Path and body: the text of a good one, with some bytes changed."""
    path, good = draw.choice(POSTS)
    return path, mutated(draw, json.dumps(good).encode())


def mutated(draw: Random, data: bytes) -> bytes:
    """Bytes flipped, cut out, doubled or put in, in one to four places."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randint(0, len(made))
        width = draw.choice((1, 1, 1, 2, 8, 64))
        match draw.randint(0, 4):
            case 0 if at < len(made):
                made[at] ^= 1 << draw.randint(0, 7)
            case 1:
                del made[at : at + width]
            case 2:
                made[at:at] = made[at : at + width]
            case 3:
                made[at:at] = draw.randbytes(width)
            case _:
                del made[at:]
    return bytes(made)
