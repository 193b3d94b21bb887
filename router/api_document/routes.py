"""Every path that the router answers: what serves a request, what is counted, and what /openapi.json says. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from octavo.router.openai_api.openai import Kind
from octavo.router.text.tokenizing import Operation

Page = Literal["livez", "readyz", "routerz", "version", "openapi", "models", "model"]
ONE_MODEL = "/v1/models/"


@dataclass(frozen=True, slots=True)
class Route:
    """asks: what its body is, for a POST; else page: what a GET shows.

    label: in metrics. is_open: answered without a key. is_probe: asked every second by a kubelet, and not counted.
    """

    path: str
    summary: str
    label: str = "other"
    asks: Kind | Operation | None = None
    page: Page | None = None
    is_open: bool = False
    is_probe: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD") if self.asks is None else ("POST",)


ROUTES = (
    Route("/v1/completions", "Complete a prompt", "completions", asks="completion"),
    Route("/v1/chat/completions", "Answer a chat", "chat_completions", asks="chat"),
    Route("/v1/responses", "Answer an input, without keeping it", "responses", asks="response"),
    Route("/v1/models", "The model that is served", "models", page="models"),
    Route(ONE_MODEL + "{model}", "One model", "models", page="model"),
    Route("/tokenize", "Token ids of a prompt or a chat", "tokenize", asks="tokenize_json"),
    Route("/detokenize", "Text of token ids", "detokenize", asks="detokenize_json"),
    Route("/version", "Octavo's version", "version", page="version"),
    Route("/openapi.json", "This document", "openapi", page="openapi"),
    Route("/livez", "Liveness of the process", page="livez", is_open=True, is_probe=True),
    Route("/readyz", "A group serves the model", page="readyz", is_open=True, is_probe=True),
    Route(
        "/routerz", "The router takes requests, to hold them if need be", page="routerz", is_open=True, is_probe=True
    ),
    Route("/health", "As /readyz, under vLLM's name", page="readyz", is_probe=True),
)
_BY_PATH: Mapping[str, Route] = {route.path: route for route in ROUTES}
_MODEL = _BY_PATH[ONE_MODEL + "{model}"]


def find(path: str) -> Route | None:
    """path: exactly as it was sent, decoded once: `//v1/models` and `/V1/models` are other paths."""
    if path.startswith(ONE_MODEL) and len(path) > len(ONE_MODEL):
        return _MODEL
    route = _BY_PATH.get(path)
    return None if route is _MODEL else route
