"""Which of the listed groups a router process has a stream to. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CUT_OFF_S = 60.0  # without a stream to any group that serves: the cause is this router or its network


@dataclass(frozen=True, slots=True)
class Reachability:
    """listed: groups in the list now. missing: seconds without a stream, by address. of_ready: the list
    names only groups that serve, as Kubernetes' does; a fixed list names them in any state."""

    listed: int = 0
    missing: Mapping[str, float] = field(default_factory=dict)
    of_ready: bool = False

    @property
    def is_cut_off(self) -> bool:
        """This process has had no stream to any ready group for CUT_OFF_S: clients should be sent to other routers."""
        all_missing = 0 < self.listed == len(self.missing)
        return self.of_ready and all_missing and min(self.missing.values()) >= CUT_OFF_S

    def to_json(self) -> dict[str, object]:
        """As JSON, for health pages."""
        missing = self.missing
        return {
            "listed": self.listed,
            "connected": self.listed - len(missing),
            "missing": [{"address": one, "seconds": round(missing[one], 1)} for one in sorted(missing)],
        }
