"""EndpointSlices to addresses: only leaders that serve and will go on serving."""

from typing import Any

from octavo.router.dispatch.rules.endpoints import ready_addresses


def endpoint(address: str, **conditions: bool | None) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions}


def slice_of(*endpoints: dict[str, Any], kind: str = "IPv4", **metadata: str) -> dict[str, Any]:
    ports = [{"name": "metrics", "port": 8504}, {"name": "serve", "port": 8500}]
    return {"metadata": {"name": "s", **metadata}, "addressType": kind, "endpoints": list(endpoints), "ports": ports}


def test_ready_leaders_are_listed_by_their_serve_port() -> None:
    slices = [slice_of(endpoint("10.0.0.1", ready=True)), slice_of(endpoint("10.0.0.2", ready=True))]
    assert ready_addresses(slices, "serve") == {"10.0.0.1:8500", "10.0.0.2:8500"}


def test_leaders_that_are_not_ready_or_terminate_are_left_out() -> None:
    slices = [
        slice_of(
            endpoint("10.0.0.1", ready=False, serving=True),
            endpoint("10.0.0.2", ready=True, terminating=True),
            endpoint("10.0.0.3", ready=False, serving=True, terminating=True),
        )
    ]
    assert ready_addresses(slices, "serve") == frozenset()


def test_a_condition_that_is_absent_means_ready() -> None:
    assert ready_addresses([slice_of({"addresses": ["10.0.0.1"]})], "serve") == {"10.0.0.1:8500"}


def test_a_slice_being_deleted_counts_no_more() -> None:
    slices = [slice_of(endpoint("10.0.0.1", ready=True), deletionTimestamp="2026-01-01T00:00:00Z")]
    assert ready_addresses(slices, "serve") == frozenset()


def test_an_ipv6_address_is_bracketed() -> None:
    assert ready_addresses([slice_of(endpoint("fd00::1", ready=True), kind="IPv6")], "serve") == {"[fd00::1]:8500"}


def test_slices_without_endpoints_or_the_port_are_empty() -> None:
    bare = {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": None, "ports": None}
    assert ready_addresses([bare], "serve") == frozenset()
