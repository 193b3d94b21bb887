"""A resource of the API server, whose CRD may be of a newer release; files stay strict."""

from typing import Any

import pytest
from support.cluster.services import resource

from octavo.operator.api.v1alpha1 import MOST_SHOWN, SpecError, parse, parse_stored
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.actions import Plan
from octavo.operator.planning.plan import plan
from octavo.operator.planning.unplanned import plan_invalid

Json = dict[str, Any]  # Any: JSON
UNKNOWN: dict[str, Json] = {
    "spec.speculation": {"speculation": {"tokens": 4}},
    "spec.engine.speculation": {"engine": {"speculation": True, "maxRequests": 8}},
    "spec.router.service.proxyProtocol": {"router": {"service": {"proxyProtocol": "v2"}}},
    "spec.accelerator.tolerations[1].newer": {
        "accelerator": {
            "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists", "newer": 1}]
        }
    },
    "spec.router.policy: 'newest'": {"router": {"policy": "newest"}},
    "spec.rollout.onFailure: 'promote'": {"rollout": {"onFailure": "promote"}},
}


@pytest.mark.parametrize("path", UNKNOWN)
def test_what_a_release_does_not_know_is_left_out_and_named_by_its_path(path: str) -> None:
    found = parse_stored(resource(**UNKNOWN[path]))
    assert found.unknown_fields == path
    with pytest.raises(SpecError, match=r"unknown field|must be one of"):
        parse(resource(**UNKNOWN[path]))


def test_the_known_fields_beside_it_hold() -> None:
    found = parse_stored(resource(**UNKNOWN["spec.engine.speculation"], replicas=3))
    assert (found.spec.engine.max_requests, found.spec.replicas) == (8, 3)
    assert found.raw == parse(resource(engine={"maxRequests": 8}, replicas=3)).raw


def test_a_value_of_a_known_field_that_cannot_be_is_still_an_error() -> None:
    with pytest.raises(SpecError, match=r"^spec\.replicas: must be 0 to 999"):
        parse_stored(resource(replicas=-1, speculation={}))
    with pytest.raises(SpecError, match=r"^spec\.replicas: expected an integer"):
        parse_stored(resource(replicas="many"))


def test_a_message_names_the_first_of_many() -> None:
    names = [f"new{number:02}" for number in range(MOST_SHOWN + 3)]
    found = parse_stored(resource(**dict.fromkeys(names, 1))).unknown_fields
    assert found.startswith("spec.new00, spec.new01") and found.endswith(f"spec.new{MOST_SHOWN - 1} and 3 more")


def planned(**spec: Any) -> Plan:
    return plan(parse_stored(resource(**spec)), Snapshot(), Options(), 0.0)


def test_everything_is_applied_and_a_condition_and_an_event_name_the_field() -> None:
    newer, known = planned(speculation={"tokens": 4}, router={"policy": "newest"}), planned()
    assert newer.apply == known.apply and newer.certificates == known.certificates is not None
    (condition,) = (entry for entry in (newer.status or {})["conditions"] if entry["type"] == "SpecSupported")
    assert (condition["status"], condition["reason"]) == ("False", "UnknownFields")
    assert "spec.speculation, spec.router.policy: 'newest'" in condition["message"]
    assert "upgrade the operator" in condition["message"]
    (event,) = (event for event in newer.events if event.reason == "UnknownFields")
    assert event.type == "Warning" and event.message == condition["message"]
    assert "UnknownFields" not in {event.reason for event in known.events}


def test_an_error_in_the_spec_of_a_service_with_pods_renews_its_certificates() -> None:
    before = planned()
    broken = resource(replicas=-1, status=dict(before.status or {}))
    assert plan_invalid(broken, ValueError("spec.replicas: no"), Snapshot(), 5.0).certificates == before.certificates
    assert plan_invalid(resource(replicas=-1), ValueError("spec.replicas: no"), Snapshot(), 5.0).certificates is None
