"""Where a router listens: the host and port that a flag names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """host as given: a name, an IPv4 or an IPv6 address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
