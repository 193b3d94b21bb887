"""Settings of the routers: each is a row of RouterSettings, and is declared nowhere else.

A row is the value that code reads. Its metadata give the rest:
    the field of spec.router, in the CRD and in docs/operations.md (`make crd`)
    the flag of `octavo router`, which the operator sets in the pods
    the flag of `octavo run`, which sets the field
Every change of a setting replaces the routers: a process reads its flags once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args

from octavo.shared.policies import DEFAULT_POLICY, POLICIES, described
from octavo.shared.setting_kinds import Choice, Duration, Integer, Json, Kind, Origins, Switch

T = TypeVar("T")
# Names of the parsers of answers.
ToolFlag = Literal["auto", "none", "llama3", "hermes", "mistral"]
ReasoningFlag = Literal["auto", "none", "think"]

# Fields of spec.router that hold several settings: name -> description.
RECORDS: Mapping[str, str] = {"queue": "Queue of the requests that wait for a group."}


@dataclass(frozen=True, slots=True)
class Setting:
    """Metadata of a row. flag: without dashes. path: below spec.router. run: help of `octavo run`; None: no flag there.

    `{default}` in a help text is the default. run_flag: flag of `octavo run`, where it is not the router's.
    """

    default: Json
    kind: Kind
    flag: str
    help: str
    path: str
    description: str
    run: str | None
    run_flag: str

    @property
    def flag_help(self) -> str:
        """Help of the router's flag."""
        return self._filled(self.help)

    @property
    def run_help(self) -> str | None:
        """Help of the flag of `octavo run`."""
        return None if self.run is None else self._filled(self.run)

    def _filled(self, text: str) -> str:
        return text.replace("{default}", self.kind.argument(self.default))


def _setting(
    default: T,
    kind: Kind,
    *,
    flag: str,
    help: str,
    path: str,
    description: str,
    run: str | None = None,
    run_flag: str | None = None,
) -> T:
    """A row's default and metadata. Typed as the value, as `dataclasses.field` is."""
    setting = Setting(default, kind, flag, help, path, description, run, run_flag or flag)
    return field(default=default, metadata={"setting": setting})


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """The settings of one router. Durations are in seconds."""

    processes: int = _setting(
        1,
        Integer(1, 64, flag_high=256),  # `octavo run` starts one router, with the processes of all
        flag="processes",
        help="processes that share the port ({default})",
        path="processes",
        description="Processes per router pod. Each uses about one CPU when busy.",
        run="processes of each router",
        run_flag="router-processes",
    )
    queue_max_requests: int = _setting(
        1000,
        Integer(1, 1_000_000),
        flag="queue-max-requests",
        help="requests that may wait, all processes ({default})",
        path="queue.maxRequests",
        description="Maximum number of waiting requests per router pod. Further requests get 429.",
        run="requests that may wait in a router",
    )
    queue_max_wait_s: float = _setting(
        60.0,
        Duration(),
        flag="queue-max-wait",
        help="seconds a request may wait for a group ({default})",
        path="queue.maxWait",
        description="Maximum wait, e.g. 500ms, 60s, 2m or 1h. The request then gets 503.",
        run="longest wait in the queue, e.g. 60s",
    )
    policy: str = _setting(
        DEFAULT_POLICY,
        Choice(tuple(POLICIES), 64),
        flag="policy",
        help=f"routing policy: which group gets a request. {described()} ({{default}})",
        path="policy",
        description=f"Routing policy: which group gets a request. {described()}.",
        run="which group gets a request (default: {default})",
    )
    max_connections: int = _setting(
        8192,
        Integer(1, 1_000_000),
        flag="max-connections",
        help="connections that clients may have open, over HTTP and gRPC each, all processes; more get 503 ({default})",
        path="maxConnections",
        description="Maximum number of open client connections per router pod, counted separately for HTTP and gRPC. "
        "Further connections are refused.",
        run="connections to a router, over HTTP and gRPC each",
    )
    client_priority: bool = _setting(
        False,
        Switch(),
        flag="client-priority",
        help="let clients set `priority`: a lower one always goes first, so that others may wait for ever",
        path="clientPriority",
        description="Allow clients to set the priority of their requests. Requests with a lower value always go "
        "first, so requests with a higher value may never run.",
        run="let clients set the priority of their requests",
    )
    strict: bool = _setting(
        False,
        Switch(),
        flag="strict",
        help="refuse requests with unknown fields, instead of a warning",
        path="strict",
        description="Reject requests with unknown fields. If false, they are served and the response carries a "
        "warning.",
        run="refuse requests with unknown fields",
    )
    cors_origins: tuple[str, ...] = _setting(
        (),
        Origins(),
        flag="cors-origin",
        help="origin whose pages may call the API from a browser, or *; repeatable ({default})",
        path="corsOrigins",
        description="Origins that may call the API from a browser, e.g. https://app.example.com, or * for all. "
        "Default: none.",
        run="pages that may call the API, or *; repeatable",
    )
    tool_parser: ToolFlag = _setting(
        "auto",
        Choice(get_args(ToolFlag), 16),
        flag="tool-parser",
        help="format of the model's tool calls ({default}: what its chat template shows)",
        path="toolParser",
        description="Format of the model's tool calls. auto: detected from the chat template. none: requests with "
        "tools are rejected.",
        run="format of tool calls (default: what the model's chat template shows)",
    )
    reasoning_parser: ReasoningFlag = _setting(
        "auto",
        Choice(get_args(ReasoningFlag), 16),
        flag="reasoning-parser",
        help="whether <think> sets reasoning apart from content ({default}: what the chat template shows)",
        path="reasoningParser",
        description="Whether <think> separates reasoning from the answer. auto: detected from the chat template.",
        run="of <think> (default: what the model's chat template shows)",
    )


# Name in RouterSettings -> metadata, in the order of the rows.
SETTINGS: Mapping[str, Setting] = {row.name: row.metadata["setting"] for row in fields(RouterSettings)}


def from_spec(router: Mapping[str, Any]) -> RouterSettings:  # Any: JSON
    """Settings of a valid spec.router with all defaults filled in."""
    return RouterSettings(**{name: row.kind.from_field(_at(router, row.path)) for name, row in SETTINGS.items()})


def to_flags(settings: RouterSettings) -> list[str]:
    """Flags of `octavo router`. Defaults are among them: routers of another version may have others."""
    return [flag for name, row in SETTINGS.items() for flag in row.kind.flags(row.flag, getattr(settings, name))]


def _at(record: Json, path: str) -> Json:
    for step in path.split("."):
        record = record[step]
    return record
