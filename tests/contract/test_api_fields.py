"""docs/api.md has a row for every field that the code serves, accepts or refuses, in the part of its endpoint."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from octavo.proto.v1 import octavo_pb2
from octavo.router.api_document.openapi import BODIES, Asks
from octavo.router.openai_api import known_fields as known

PAGE = (Path(__file__).resolve().parents[2] / "docs/api.md").read_text()
EVERYWHERE = ("Fields of every endpoint", "Fields that no endpoint serves")
ANSWERS = (*EVERYWHERE, "Fields of completions and chats", "Sampling and log-probabilities", "Structured output")
CHAT = (*ANSWERS, "`POST /v1/chat/completions`")
PARTS: Mapping[Asks, tuple[str, ...]] = {
    "completion": (*ANSWERS, "`POST /v1/completions`"),
    "chat": CHAT,
    "response": (*CHAT, "`POST /v1/responses`"),
    "tokenize_json": (*CHAT, "`POST /tokenize` and `/detokenize`"),
    "detokenize_json": (*CHAT, "`POST /tokenize` and `/detokenize`"),
}


def parts() -> dict[str, dict[str, str]]:
    """Each part's rows, by the names in their first cell; of `a.b` and `a[].b` that is `a`. Without rows of answers."""
    found: dict[str, dict[str, str]] = {}
    for part in PAGE.split("\n## ")[1:]:
        title, _, text = part.partition("\n### Answers")[0].partition("\n")
        rows = found.setdefault(title, {})
        for row in re.findall(r"^\| ?(.+) ?\|$", text, re.M):
            for name in re.findall(r"`([a-z_]+)[^`]*`", row.split(" | ")[0]):
                rows[name] = rows.get(name, "") + row
    return found


ROWS = parts()


@pytest.mark.parametrize("kind", BODIES)
def test_every_field_that_an_endpoint_takes_has_its_row(kind: Asks) -> None:
    names = BODIES[kind].served | known.EVERYWHERE
    assert {name for name in names if not any(name in ROWS[part] for part in PARTS[kind])} == set()


def test_what_no_endpoint_serves_has_a_row_that_says_what_becomes_of_it() -> None:
    served = {name for body in BODIES.values() for name in body.served}
    others = {name for body in BODIES.values() for name in (*body.harmless, *body.refused)} | set(known.ELSEWHERE)
    assert len(others - served) > 60
    texts = {name: " ".join(rows.get(name, "") for rows in ROWS.values()) for name in others - served}
    assert {name for name, text in texts.items() if "efused" not in text and "ccepted" not in text} == set()


def test_each_part_of_the_page_is_one_of_the_code() -> None:
    """A field that was taken out of the code leaves the page, too."""
    code = {name for body in BODIES.values() for name in (*body.served, *body.harmless, *body.refused)}
    code |= {*known.ELSEWHERE, *known.EVERYWHERE, *known.OF_ONE_ENDPOINT}
    titles = {title for found in PARTS.values() for title in found}
    assert {name for title in titles for name in ROWS[title]} - code == set()


def test_every_field_of_a_grpc_request_has_its_row() -> None:
    message = octavo_pb2.GenerateRequest.DESCRIPTOR
    assert {field.name for field in message.fields} - set(ROWS["gRPC"]) == set()
    sampling = ROWS["gRPC"]["sampling"]
    missing = {
        field.name for field in octavo_pb2.SamplingParameters.DESCRIPTOR.fields if f"`{field.name}`" not in sampling
    }
    assert missing == set()
