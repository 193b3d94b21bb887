"""What a service may ask for is limited by the operator's lists, and a refusal names the field and the list."""

import pytest
from support.cluster.services import service

from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import Plan, plan


def degraded(planned: Plan) -> tuple[str, str]:
    assert planned.status is not None
    (found,) = [entry for entry in planned.status["conditions"] if entry["type"] == "Degraded"]
    return (found["reason"], found["message"]) if found["status"] == "True" else ("", "")


def groups(planned: Plan) -> int:
    return sum(item.object["kind"] == "StatefulSet" for item in planned.apply)


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("file:///srv/models", True),
        ("file:///srv/models/llama", True),
        ("file:///srv/models%20old", False),
        ("file:///srv/models-old", False),
        ("file:///srv", False),
        ("file:///var/run/containerd", False),
        ("file:///data/x", True),
        ("pvc://claim/srv", True),
    ],
)
def test_a_folder_of_a_node_must_be_in_an_allowed_one(uri: str, allowed: bool) -> None:
    options = Options(host_path_allow=("/srv/models", "/data/"))
    planned = plan(service(model={"uri": uri}), Snapshot(), options, 0.0)
    reason, message = degraded(planned)
    assert groups(planned) == allowed and reason == ("" if allowed else "HostPathNotAllowed")
    assert allowed or (uri in message and "/srv/models" in message and "hostPathAllow" in message)


def test_the_root_allows_all_folders_and_an_empty_list_none() -> None:
    assert Options(host_path_allow=("/",)).host_path_allowed("/any/where")
    assert not Options().host_path_allowed("/any/where")


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("ghcr.io/octavo/worker:1", True),
        ("ghcr.io/octavo/worker@sha256:00", True),
        ("ghcr.io/octavo-evil/worker:1", False),
        ("ghcr.io/octavoevil:1", False),
        ("registry.corp/x:1", True),
        ("registry.corp:5000/evil:1", False),
        ("registry.corp.evil/x", False),
        ("mirror:5000/team/worker", True),
        ("mirror:5000/team/worker:2", True),
        ("mirror:5000/team/worker-of-others", False),
        ("attacker/tool", False),
    ],
)
def test_an_image_must_be_of_an_allowed_repository(image: str, allowed: bool) -> None:
    options = Options(image_allow=("ghcr.io/octavo", "registry.corp/", "mirror:5000/team/worker"))
    planned = plan(service(image=image), Snapshot(), options, 0.0)
    reason, message = degraded(planned)
    assert groups(planned) == allowed and reason == ("" if allowed else "ImageNotAllowed")
    assert allowed or (image in message and "ghcr.io/octavo" in message and "imageAllow" in message)


def test_the_operators_own_image_needs_no_entry_and_without_a_list_all_images_are_allowed() -> None:
    listed = Options(image_allow=("elsewhere.example",))
    assert groups(plan(service(), Snapshot(), listed, 0.0)) == 1
    assert groups(plan(service(image=listed.worker_image), Snapshot(), listed, 0.0)) == 1
    assert groups(plan(service(image="attacker/tool"), Snapshot(), Options(), 0.0)) == 1
