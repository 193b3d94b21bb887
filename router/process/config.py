"""The flags of `octavo router`, checked once."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from octavo.router.dispatch.rules.loopback import check_loopback
from octavo.router.frontend.address import Address
from octavo.router.parsers.parser_flags import ParserFlags
from octavo.shared.router_settings import SETTINGS, RouterSettings, Setting
from octavo.shared.setting_kinds import Choice, Duration, Origins, Switch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Config:
    """What the flags say; the flags' help has the meaning of each."""

    http: Address
    grpc: Address | None
    metrics: Address | None
    groups: tuple[str, ...]
    endpoints: tuple[str, str] | None  # namespace, Service
    tls_dir: Path | None
    service_uid: str
    served_name: str
    grace_period_s: float
    drain_delay_s: float
    api_keys_file: Path | None
    settings: RouterSettings
    log_level: str  # a level of the logging module

    @property
    def parsers(self) -> ParserFlags:
        """Parsers of the model's answers."""
        return ParserFlags(self.settings.tool_parser, self.settings.reasoning_parser)


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
    return Config(
        http=flags.http,
        grpc=flags.grpc,
        metrics=flags.metrics,
        groups=tuple(flags.group),
        endpoints=flags.endpoints,
        tls_dir=flags.tls_dir,
        service_uid=flags.service_uid,
        served_name=flags.served_name,
        grace_period_s=flags.grace_period,
        drain_delay_s=flags.drain_delay,
        api_keys_file=flags.api_keys_file,
        settings=_settings(flags),
        log_level=flags.log_level.upper(),
    )


def _check_local(parser: argparse.ArgumentParser, groups: list[str]) -> None:
    for group in groups:
        if not group.startswith("unix:"):
            try:
                check_loopback(group)
            except ValueError as error:
                parser.error(f"argument --group: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo router", description="Speaks OpenAI's API to clients, tokens to groups."
    )
    add = parser.add_argument
    add("--http", type=_address, default=Address("127.0.0.1", 8000), help="HOST:PORT of the HTTP API (127.0.0.1:8000)")
    add("--grpc", type=_address, help="HOST:PORT of the gRPC API (none)")
    add("--metrics", type=_address, help="HOST:PORT of /metrics, for all processes together (none)")
    add("--group", action="append", default=[], type=_group, help="a leader: unix:/path or HOST:PORT; repeatable")
    add("--endpoints", type=_endpoints, help="NAMESPACE/SERVICE whose EndpointSlices list the leaders")
    add("--tls-dir", type=Path, help="folder of ca.crt, tls.crt, tls.key; without it only local addresses are dialled")
    add("--service-uid", default="", help="uid of the InferenceService, part of the names in certificates")
    add("--served-name", default="", help="the model's name in the API (what the groups call it)")
    for setting in SETTINGS.values():
        add(f"--{setting.flag}", help=setting.flag_help.replace("%", "%%"), **_options(setting))
    add("--grace-period", type=_seconds, default=120.0, help="seconds from SIGTERM until open requests are cut (120)")
    add(
        "--drain-delay",
        type=_seconds,
        default=5.0,
        help="seconds to serve on after SIGTERM, until no one sends more (5)",
    )
    add(
        "--api-keys-file",
        type=Path,
        help="file of the keys that clients need, one a line; read again when it changes. While it is missing or holds "
        "no key, every request is refused",
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


def _options(setting: Setting) -> dict[str, Any]:  # Any: argparse's own options
    kind = setting.kind
    match kind:
        case Switch():
            return {"action": "store_true"}
        case Choice():
            return {"choices": kind.names, "default": setting.default}
        case Origins():
            return {"action": "append", "default": [], "type": argument_type(kind.parse)}
    return {"type": argument_type(kind.parse), "default": setting.default}


def _settings(flags: argparse.Namespace) -> RouterSettings:
    return RouterSettings(**{name: _given(flags, setting) for name, setting in SETTINGS.items()})


def _given(flags: argparse.Namespace, setting: Setting) -> Any:  # Any: the setting's value
    value = getattr(flags, setting.flag.replace("-", "_"))
    return tuple(value) if isinstance(value, list) else value


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """`parse` for argparse, which shows the message of its own kind of error alone."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


_seconds = argument_type(Duration().parse)
