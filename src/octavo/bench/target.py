"""Which server a benchmark loads, and how it is spoken to."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from octavo.bench.options import pair, whole
from octavo.errors import UsageError

ENDPOINTS = {"openai": "/v1/completions", "vllm": "/v1/completions", "openai-chat": "/v1/chat/completions"}
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class Target:
    """base_url: http://host:port. headers: with the API key. verify: the server's certificate.

    model: None for the server's first. served_name: the model's in requests, where it is another than `model`.
    """

    backend: str
    base_url: str
    endpoint: str
    headers: Mapping[str, str]
    verify: bool
    model: str | None
    served_name: str | None

    @property
    def chat(self) -> bool:
        return self.backend == "openai-chat"


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options of `target`."""
    group = parser.add_argument_group("server")
    group.add_argument("--backend", choices=tuple(ENDPOINTS), default="openai", help="default: %(default)s")
    group.add_argument("--base-url", help="such as http://host:8000, instead of --host and --port")
    group.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    group.add_argument("--port", type=_port, default=8000, help="default: %(default)s")
    group.add_argument("--endpoint", help="path (default: the backend's own, e.g. /v1/completions)")
    group.add_argument("--model", help="name that the server knows (default: the first of /v1/models)")
    group.add_argument("--served-model-name", help="name in requests, where --model is only that of the result")
    group.add_argument("--header", type=pair, nargs="+", action="extend", metavar="KEY=VALUE", help="of every request")
    group.add_argument("--api-key", help="sent as a bearer token (default: the variable OPENAI_API_KEY)")
    group.add_argument("--insecure", action="store_true", help="do not verify the server's certificate")


def target(args: argparse.Namespace, environment: Mapping[str, str]) -> Target:
    """environment: for OPENAI_API_KEY. Raises UsageError."""
    return Target(
        backend=args.backend,
        base_url=_base_url(args),
        endpoint=_endpoint(args),
        headers=_headers(args, environment),
        verify=not args.insecure,
        model=args.model,
        served_name=args.served_model_name,
    )


def _base_url(args: argparse.Namespace) -> str:
    if args.base_url is None:
        host = f"[{args.host}]" if ":" in args.host else args.host
        return f"http://{host}:{args.port}"
    try:
        parts = urlsplit(args.base_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"--base-url: {args.base_url!r} is not such as http://host:8000")
    return str(args.base_url).rstrip("/")


def _endpoint(args: argparse.Namespace) -> str:
    own = ENDPOINTS[args.backend]
    if args.endpoint is None:
        return own
    path = str(args.endpoint)
    alike = path.endswith("/chat/completions") == own.endswith("/chat/completions")
    if not path.startswith("/") or not path.endswith("/completions") or not alike:
        raise UsageError(f"--endpoint: {path!r} is not one of --backend {args.backend}, such as {own}")
    return path


def _headers(args: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """Headers of every request; --header overrides the API key. Raises UsageError."""
    headers = {}
    if key := args.api_key or environment.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    headers |= dict(args.header or [])
    for name, value in headers.items():
        if not HEADER.fullmatch(name) or not value.isprintable() or not value.isascii():
            option = "--api-key" if name == "Authorization" and not args.header else "--header"
            raise UsageError(f"{option}: {name!r} cannot be sent as an HTTP header")
    return headers


def _port(text: str) -> int:
    port = whole(1)(text)
    if port > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port (1 to 65535)")
    return port
