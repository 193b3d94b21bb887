"""EndpointSlices, as the API server writes them, to the addresses of serving leaders. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Slice = Mapping[str, Any]  # JSON of discovery.k8s.io/v1 EndpointSlice


def ready_addresses(slices: Iterable[Slice], port_name: str) -> frozenset[str]:
    """`host:port` of each endpoint that is ready and does not terminate."""
    found: set[str] = set()
    for slice_ in slices:
        if slice_["metadata"].get("deletionTimestamp"):
            continue
        port = _port(slice_, port_name)
        if port is None:
            continue
        for endpoint in slice_.get("endpoints") or ():
            if _takes_requests(endpoint.get("conditions") or {}):
                # All addresses of one endpoint are the same pod; the API says to use the first.
                found.add(f"{_host(endpoint['addresses'][0], slice_['addressType'])}:{port}")
    return frozenset(found)


def _takes_requests(conditions: Mapping[str, bool | None]) -> bool:
    """Absent `ready` means ready, as the API says."""
    return conditions.get("ready") is not False and not conditions.get("terminating")


def _port(slice_: Slice, name: str) -> int | None:
    for port in slice_.get("ports") or ():
        if port.get("name") == name and port.get("port"):
            return int(port["port"])
    return None


def _host(address: str, kind: str) -> str:
    return f"[{address}]" if kind == "IPv6" else address
