"""Bodies that are refused whatever happens, and the statuses that say so."""

import json
import random

from support.soak.asks import LONG_S, Ask

_INVALID = frozenset({400})
_DEEP = b'{"prompt": ' + b"[" * 100 + b"]" * 100 + b"}"
BODIES: tuple[tuple[bytes, frozenset[int]], ...] = (
    *((body, _INVALID) for body in (b"{", b"", b"[]", b"\xff\xfe{}", _DEEP)),
    *(
        (body, _INVALID)
        for body in (
            b'{"prompt": 5}',
            b'{"max_tokens": 4}',
            b'{"prompt": "a", "max_tokens": -1}',
            b'{"prompt": "a", "max_tokens": 100000}',
            b'{"prompt": "a", "temperature": "hot"}',
            b'{"prompt": "a", "n": 0}',
            b'{"prompt": "a", "n": 1e9}',
            b'{"prompt": [1, 2, 99999]}',
            b'{"prompt": "a", "best_of": 3}',
            b'{"prompt": "a", "stop": [""]}',
            b'{"prompt": "a", "logprobs": 99}',
            b'{"prompt": "a", "seed": NaN}',
            b'{"prompt": "a", "guided_regex": "("}',
            b'{"prompt": "a", "timeout": 0}',
            json.dumps({"prompt": "x" * 9000}).encode(),
        )
    ),
    (b'{"prompt": "a", "model": "none"}', frozenset({404})),
)


def bad_ask(draw: random.Random) -> Ask:
    body, refused = draw.choice(BODIES)
    return Ask("bad", "/v1/completions", body, LONG_S, refused=refused)
