"""Which of the listed groups a router process has a stream to, and whether the list is kept current. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Without a stream to any group that serves, or without an answer to the watch of the list: the cause is this router,
# its network or its account.
CUT_OFF_S = 60.0


@dataclass(frozen=True, slots=True)
class Reachability:
    """listed: groups in the list now. missing: seconds without a stream, by address. of_ready: the list
    names only groups that serve, as Kubernetes' does; a fixed list names them in any state. silent_s: seconds since the
    API server last answered the watch of the list; 0 for a fixed list. skews: by address, why a missing group's release
    and the router's do not work together."""

    listed: int = 0
    missing: Mapping[str, float] = field(default_factory=dict)
    of_ready: bool = False
    silent_s: float = 0.0
    skews: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_stale(self) -> bool:
        """The watch of the list has been lost for CUT_OFF_S: groups that were created since are not known."""
        return self.silent_s >= CUT_OFF_S

    @property
    def is_cut_off(self) -> bool:
        """This process has had no stream to any ready group for CUT_OFF_S, or has none and cannot learn of one: clients
        should be sent to other routers. With a stream it goes on, since an API server that is away must not end what
        serves."""
        if not self.of_ready or self.listed > len(self.missing):
            return False
        return self.is_stale or (self.listed > 0 and min(self.missing.values()) >= CUT_OFF_S)

    def to_json(self) -> dict[str, object]:
        """As JSON, for health pages."""
        missing = self.missing
        return {
            "listed": self.listed,
            "connected": self.listed - len(missing),
            "missing": [self._missing(one) for one in sorted(missing)],
            **({"stale_seconds": round(self.silent_s, 1)} if self.is_stale else {}),
        }

    def _missing(self, address: str) -> dict[str, object]:
        entry: dict[str, object] = {"address": address, "seconds": round(self.missing[address], 1)}
        return entry | ({"skew": self.skews[address]} if address in self.skews else {})
