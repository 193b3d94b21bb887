"""The flags of `octavo router`, checked once."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from octavo.router.dispatch.tls import check_loopback
from octavo.router.frontend.address import Address
from octavo.router.frontend.keys import KeyFile, KeysInvalid
from octavo.router.parsers.parser_flags import ParserFlags
from octavo.shared.origins import is_origin
from octavo.shared.parser_names import REASONING_FLAGS, TOOL_FLAGS
from octavo.shared.policies import DEFAULT_POLICY, POLICIES, described


@dataclass(frozen=True, slots=True)
class Config:
    """What the flags say; the flags' help has the meaning of each."""

    http: Address
    grpc: Address | None
    metrics: Address | None
    processes: int
    groups: tuple[str, ...]
    endpoints: tuple[str, str] | None  # namespace, Service
    tls_dir: Path | None
    service_uid: str
    served_name: str
    queue_max_requests: int
    queue_max_wait_s: float
    policy: str
    max_connections: int
    grace_period_s: float
    drain_delay_s: float
    api_keys_file: Path | None
    cors_origins: frozenset[str]
    strict: bool
    client_priority: bool
    parsers: ParserFlags
    log_level: str  # a level of the logging module


def parse_arguments(argv: list[str]) -> Config:
    """Exits with code 2 and a message naming the flag."""
    parser = _parser()
    flags = parser.parse_args(argv)
    if bool(flags.group) == (flags.endpoints is not None):
        parser.error("give either --group (once for each group) or --endpoints")
    if flags.tls_dir is not None and not flags.tls_dir.is_dir():
        parser.error(f"argument --tls-dir: {flags.tls_dir} is not a folder")
    if flags.tls_dir is None:
        _check_local(parser, flags.group)
    if flags.endpoints is not None and flags.tls_dir is None:
        parser.error("argument --endpoints: groups on other machines need --tls-dir")
    if flags.grpc is not None and flags.grpc == flags.http and flags.grpc.port:
        parser.error(f"argument --grpc: {flags.grpc} is --http's")  # SO_REUSEPORT would let both listen there
    if flags.api_keys_file is not None:
        _check_keys(parser, flags.api_keys_file)
    return Config(
        http=flags.http,
        grpc=flags.grpc,
        metrics=flags.metrics,
        processes=flags.processes,
        groups=tuple(flags.group),
        endpoints=flags.endpoints,
        tls_dir=flags.tls_dir,
        service_uid=flags.service_uid,
        served_name=flags.served_name,
        queue_max_requests=flags.queue_max_requests,
        queue_max_wait_s=flags.queue_max_wait,
        policy=flags.policy,
        max_connections=flags.max_connections,
        grace_period_s=flags.grace_period,
        drain_delay_s=flags.drain_delay,
        api_keys_file=flags.api_keys_file,
        cors_origins=frozenset(flags.cors_origin),
        strict=flags.strict,
        client_priority=flags.client_priority,
        parsers=ParserFlags(flags.tool_parser, flags.reasoning_parser),
        log_level=flags.log_level.upper(),
    )


def _check_local(parser: argparse.ArgumentParser, groups: list[str]) -> None:
    for group in groups:
        if not group.startswith("unix:"):
            try:
                check_loopback(group)
            except ValueError as error:
                parser.error(f"argument --group: {error}")


def _check_keys(parser: argparse.ArgumentParser, path: Path) -> None:
    try:
        KeyFile(path)
    except (OSError, KeysInvalid) as error:
        parser.error(f"argument --api-keys-file: {path}: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo router", description="Speaks OpenAI's API to clients, tokens to groups."
    )
    add = parser.add_argument
    add("--http", type=_address, default=Address("127.0.0.1", 8000), help="HOST:PORT of the HTTP API (127.0.0.1:8000)")
    add("--grpc", type=_address, help="HOST:PORT of the gRPC API (none)")
    add("--metrics", type=_address, help="HOST:PORT of /metrics, for all processes together (none)")
    add("--processes", type=_count(1, 256), default=1, help="processes that share the port (1)")
    add("--group", action="append", default=[], type=_group, help="a leader: unix:/path or HOST:PORT; repeatable")
    add("--endpoints", type=_endpoints, help="NAMESPACE/SERVICE whose EndpointSlices list the leaders")
    add("--tls-dir", type=Path, help="folder of ca.crt, tls.crt, tls.key; without it only local addresses are dialled")
    add("--service-uid", default="", help="uid of the InferenceService, part of the names in certificates")
    add("--served-name", default="", help="the model's name in the API (what the groups call it)")
    add(
        "--queue-max-requests",
        type=_count(1, 1_000_000),
        default=1000,
        help="requests that may wait, all processes (1000)",
    )
    add("--queue-max-wait", type=_seconds, default=60.0, help="seconds a request may wait for a group (60)")
    add(
        "--policy",
        choices=tuple(POLICIES),
        default=DEFAULT_POLICY,
        help=f"routing policy: which group gets a request. {described()} ({DEFAULT_POLICY})",
    )
    add(
        "--max-connections",
        type=_count(1, 1_000_000),
        default=8192,
        help="connections that clients may have open, over HTTP and gRPC each, all processes; more get 503 (8192)",
    )
    add("--grace-period", type=_seconds, default=120.0, help="seconds from SIGTERM until open requests are cut (120)")
    add(
        "--drain-delay",
        type=_seconds,
        default=5.0,
        help="seconds to serve on after SIGTERM, until no one sends more (5)",
    )
    add("--api-keys-file", type=Path, help="file of the keys that clients need, one a line; read again when it changes")
    add(
        "--cors-origin",
        action="append",
        default=[],
        type=origin,
        help="origin whose pages may call the API from a browser, or *; repeatable (none)",
    )
    add("--strict", action="store_true", help="refuse requests with unknown fields, instead of a warning")
    add(
        "--client-priority",
        action="store_true",
        help="let clients set `priority`: a lower one always goes first, so that others may wait for ever",
    )
    add(
        "--tool-parser",
        choices=TOOL_FLAGS,
        default="auto",
        help="format of the model's tool calls (auto: what its chat template shows)",
    )
    add(
        "--reasoning-parser",
        choices=REASONING_FLAGS,
        default="auto",
        help="whether <think> sets reasoning apart from content (auto: what the chat template shows)",
    )
    add("--log-level", choices=["debug", "info", "warning", "error"], default="info", help="least level to log (info)")
    return parser


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return Address(host, int(port))


def _group(text: str) -> str:
    if text.startswith("unix:") and len(text) > len("unix:"):
        return text
    return str(_address(text))


def _endpoints(text: str) -> tuple[str, str]:
    namespace, slash, service = text.partition("/")
    if not slash or not namespace or not service or "/" in service:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/SERVICE")
    return namespace, service


def origin(text: str) -> str:
    if not is_origin(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an origin such as https://example.com, nor *")
    return text


class _count:
    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def __call__(self, text: str) -> int:
        if not text.isdecimal() or not self.low <= int(text) <= self.high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number in {self.low}..{self.high}")
        return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds in 0..86400")
    return seconds
