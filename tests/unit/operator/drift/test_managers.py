"""Which field differs, and which field manager has set it, by managedFields as the API server writes them."""

from typing import Any

import pytest

from octavo.operator.drift.managers import manager_of, shown
from octavo.operator.planning.apply_diff import Path, different

DESIRED: dict[str, Any] = {
    "metadata": {"labels": {"octavo.dev/service": "chat"}},
    "spec": {
        "replicas": 1,
        "template": {"spec": {"containers": [{"name": "router", "image": "a", "args": ["x", "y"]}]}},
        "ports": [{"port": 80, "protocol": "TCP", "name": "http"}],
    },
}


def _live(**changes: Any) -> dict[str, Any]:
    spec = {**DESIRED["spec"], **changes}
    return {"metadata": {**DESIRED["metadata"]}, "spec": spec}


def _entry(manager: str, fields: dict[str, Any], time: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields, **more}


PORTS = {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}}}}}
CONTAINER: Path = ("spec", "template", "spec", "containers", (("name", "router"),))


@pytest.mark.parametrize(
    ("live", "paths"),
    [
        (_live(), []),
        (_live(replicas=4), ["spec.replicas"]),
        (_live(ports=[{"port": 80, "protocol": "TCP", "name": "web"}]), ["spec.ports[80].name"]),
        (_live(ports=[]), ["spec.ports[80]"]),
        (
            _live(template={"spec": {"containers": [{"name": "router", "image": "b", "args": ["x"]}]}}),
            ["spec.template.spec.containers[router].image", "spec.template.spec.containers[router].args"],
        ),
    ],
)
def test_the_fields_that_differ_are_named(live: dict[str, Any], paths: list[str]) -> None:
    assert [shown(path) for path in different(live, DESIRED)] == paths


def test_a_label_that_is_gone_is_named_and_additions_are_not() -> None:
    live = {**_live(), "metadata": {"labels": {"team": "search"}}}
    assert [shown(path) for path in different(live, DESIRED)] == ["metadata.labels.octavo.dev/service"]


@pytest.mark.parametrize(
    ("path", "fields", "covers"),
    [
        (("spec", "replicas"), {"f:spec": {"f:replicas": {}}}, True),
        (("spec", "replicas"), {"f:spec": {"f:template": {}}}, False),
        (("spec", "replicas"), {"f:metadata": {}}, False),
        (
            (*CONTAINER, "image"),
            {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"router"}': {"f:image": {}}}}}}},
            True,
        ),
        (
            (*CONTAINER, "image"),
            {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"proxy"}': {"f:image": {}}}}}}},
            False,
        ),
        (("spec", "ports", (("port", 80),), "name"), PORTS, False),
        (("spec", "ports", (("port", 80), ("protocol", "TCP")), "name"), PORTS, True),
        (("spec", "ingress", "0"), {"f:spec": {"f:ingress": {}}}, True),
    ],
)  # fmt: skip
def test_the_manager_of_a_field_is_the_one_whose_fields_contain_it(path: Path, fields: Any, covers: bool) -> None:
    live = {**_live(), "metadata": {"managedFields": [_entry("hpa", fields)]}}
    live["spec"] = {**live["spec"], "ingress": {"0": 1}}
    assert manager_of(live, path, "octavo") == ("hpa" if covers else "")


def test_of_several_managers_the_latest_is_named_and_never_ourselves() -> None:
    fields = {"f:spec": {"f:replicas": {}}}
    entries = [
        _entry("kubectl", fields, "2026-01-01T00:00:01Z"),
        _entry("hpa", fields, "2026-01-01T00:00:02Z", subresource="scale"),
        _entry("octavo", fields, "2026-01-01T00:00:03Z"),
        _entry("kube-controller-manager", {"f:status": {}}, "2026-01-01T00:00:04Z", subresource="status"),
    ]
    live = {**_live(), "metadata": {"managedFields": entries}}
    assert manager_of(live, ("spec", "replicas"), "octavo") == "hpa"


def test_of_a_field_that_is_gone_the_last_manager_is_named() -> None:
    live = {**_live(), "metadata": {"managedFields": [_entry("kubectl-edit", {"f:spec": {"f:paused": {}}})]}}
    del live["spec"]["replicas"]
    assert manager_of(live, ("spec", "replicas"), "octavo") == "kubectl-edit"
