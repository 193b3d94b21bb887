"""Rollouts on a real API server: what has served stays, what is kept comes back, and what lost its label is found."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import Operator, condition, operator, service, settled, writes
from support.patience import PATIENCE_S

WORKERS = "octavo.dev/service=chat,octavo.dev/component=worker"
Json = dict[str, Any]  # Any: Kubernetes JSON


class Groups:
    """The groups of the service `chat`, and a kubelet for their pods: there are no nodes here."""

    def __init__(self, bed: Bed, space: str) -> None:
        self.bed, self.space = bed, space

    def images(self) -> dict[str, str]:
        """Image of each group by the name of its StatefulSet."""
        found = self.bed.objects("statefulsets", self.space, WORKERS)
        return {item["metadata"]["name"]: image_of(item) for item in found if not is_deleted(item)}

    def named(self, image: str) -> list[str]:
        return sorted(name for name, found in self.images().items() if found == image)

    def uids(self, image: str) -> set[str]:
        found = self.bed.objects("statefulsets", self.space, WORKERS)
        return {item["metadata"]["uid"] for item in found if image_of(item) == image}

    def serve(self, name: str, serves: bool = True) -> None:
        """The group's only pod, once it is there, is ready, or no longer."""
        pod = f"{name}-0"
        wait_until(lambda: self.bed.get("pod", pod, self.space), PATIENCE_S, pod)
        ready = {"type": "Ready", "status": "True" if serves else "False"}
        status = {"status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}, ready]}}
        change = ["--subresource=status", "--type=merge", "-p", json.dumps(status)]
        self.bed.kubectl("patch", "pod", pod, "-n", self.space, *change)

    def patch(self, **spec: Any) -> None:  # Any: fields of the spec
        change = json.dumps({"spec": spec})
        self.bed.kubectl("patch", "infsvc", "chat", "-n", self.space, "--type=merge", "-p", change)

    def revisions(self, component: str = "worker") -> list[Json]:
        """The kept revisions, in the order in which they became targets."""
        selector = f"octavo.dev/service=chat,octavo.dev/component={component},!octavo.dev/group"
        return sorted(self.bed.objects("controllerrevisions", self.space, selector), key=lambda item: item["revision"])

    def status(self) -> Json:
        return dict((self.bed.get("infsvc", "chat", self.space) or {}).get("status", {}))


def image_of(item: Json) -> str:
    return str(item["spec"]["template"]["spec"]["containers"][0]["image"])


def is_deleted(item: Json) -> bool:
    return "deletionTimestamp" in item["metadata"]


@pytest.fixture
def groups(bed: Bed, space: str) -> Groups:
    return Groups(bed, space)


def serving(groups: Groups, count: int, image: str = "good") -> list[str]:
    """Groups of this image that serve, and that the operator has seen serve."""
    wait_until(lambda: len(groups.named(image)) == count, PATIENCE_S, f"{count} groups of {image}")
    for name in groups.named(image):
        groups.serve(name)
    wait_until(lambda: groups.status().get("readyReplicas") == count, PATIENCE_S, f"{count} groups serve")
    return groups.named(image)


def looked(bed: Bed, space: str, then: Callable[[], object], what: str) -> None:
    """The operator has done what it is to do, and come to rest."""
    wait_until(then, PATIENCE_S, what)
    settled(bed, space, quiet_s=1.0)


@pytest.mark.timeout(600)
def test_no_history_of_bad_edits_blips_and_restarts_costs_a_group_that_has_served(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    chance, replicas = random.Random(seed), 3
    print(f"seed {seed}")
    flags = ("--namespace", space, "--lease-namespace", space)
    one = Operator(bed.kubeconfig, tmp_path, *flags).ready()
    try:
        bed.apply(service(image="good", replicas=replicas), namespace=space)
        names = serving(groups, replicas)
        uids, offset = groups.uids("good"), bed.audit_log.stat().st_size
        for number in range(20):
            match chance.choice(["edit", "edit", "blip", "blip", "pod", "operator"]):
                case "edit":
                    groups.patch(image=f"bad-{number}")
                    looked(bed, space, lambda: groups.named(f"bad-{number}"), f"bad-{number} is tried")  # noqa: B023
                case "blip":
                    groups.serve(name := chance.choice(names), serves=False)
                    looked(bed, space, lambda: is_noted(groups, name), f"the blip of {name} is noted")
                    groups.patch(image=f"bad-in-a-blip-{number}")
                    looked(bed, space, lambda: groups.named(f"bad-in-a-blip-{number}"), "the edit is tried")  # noqa: B023
                    groups.serve(name)
                case "pod":
                    bed.kubectl("delete", "pod", f"{(name := chance.choice(names))}-0", "-n", space)
                    groups.serve(name)
                case "operator":
                    one.kill()
                    bed.client.delete("lease", "octavo-operator", space)
                    one = Operator(bed.kubeconfig, tmp_path, *flags).ready()
            assert groups.uids("good") == uids, f"seed {seed}, step {number}"
        wait_until(lambda: groups.status()["readyReplicas"] == replicas, PATIENCE_S, "all serve")
        deleted = {line.split("/")[-1] for line in writes(bed, space, offset) if "delete statefulsets" in line}
        assert not deleted & set(names), f"seed {seed}"
    finally:
        one.kill()


def is_noted(groups: Groups, name: str) -> bool:
    found = groups.bed.get("statefulset", name, groups.space) or {}
    return "octavo.dev/down-since" in found["metadata"].get("annotations", {})


def test_a_scale_up_during_a_stuck_rollout_makes_groups_that_can_serve(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(image="good", replicas=2), namespace=space)
        serving(groups, 2)
        groups.patch(image="bad")
        wait_until(lambda: groups.named("bad"), PATIENCE_S, "the bad image is tried")
        bed.kubectl("scale", "infsvc/chat", "--replicas=6", "-n", space)
        serving(groups, 6)
        settled(bed, space, quiet_s=1.0)
        assert len(groups.named("good")) == 6 and len(groups.named("bad")) == 1


def test_a_rollout_past_its_deadline_goes_back_and_another_edit_tries_again(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        rollout = {"progressDeadline": "3s", "onFailure": "rollback"}
        bed.apply(service(image="good", rollout=rollout), namespace=space)
        serving(groups, 1)
        wait_until(lambda: any(record.get("completed") for record in records(groups)), PATIENCE_S, "complete")
        groups.patch(image="bad")
        wait_until(lambda: groups.status().get("rollback"), PATIENCE_S, "the rollback")
        wait_until(lambda: not groups.named("bad"), PATIENCE_S, "the bad group is gone")
        assert condition(bed, space, "Progressing")["reason"] == "RolledBack"
        assert groups.status()["rollback"]["revision"] != groups.status()["revision"]
        assert condition(bed, space, "Ready")["status"] == "False", "there are no routers here"
        groups.patch(image="better", rollout={"progressDeadline": "1h"})
        wait_until(lambda: groups.named("better"), PATIENCE_S, "the next image is tried")
        assert "rollback" not in groups.status()
    assert not any("rollback" in record for record in records(groups))


def records(groups: Groups) -> list[Json]:
    """What is noted about each kept revision."""
    return [json.loads(item["metadata"]["annotations"]["octavo.dev/rollout"]) for item in groups.revisions()]


def test_zero_and_back_bring_the_same_image_whatever_the_operator_has_become(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space, "--worker-image", "one", "--router-image", "r-one"):
        bed.apply(service(), namespace=space)
        wait_until(lambda: groups.named("one"), PATIENCE_S, "the group")
        bed.kubectl("scale", "infsvc/chat", "--replicas=0", "-n", space)
        wait_until(lambda: not groups.images(), PATIENCE_S, "no group")
        settled(bed, space, quiet_s=1.0)
    before = groups.revisions() + groups.revisions("router")
    with operator(bed.kubeconfig, tmp_path, space, "--worker-image", "two", "--router-image", "r-two"):
        for change in ({"replicas": 1}, {"paused": True}, {"paused": False}):
            groups.patch(**change)
            wait_until(lambda: bool(groups.images()) != bool(change.get("paused")), PATIENCE_S, f"{change}")  # noqa: B023
            assert not groups.named("two")
        settled(bed, space, quiet_s=1.0)
        assert [item["data"] for item in groups.revisions() + groups.revisions("router")] == [i["data"] for i in before]
        routers = bed.get("deployment", "chat-router", space)
        assert routers is not None and image_of(routers) == "r-one"


def test_a_forged_template_is_not_applied_and_a_changed_one_is_set_back(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(image="good"), namespace=space)
        serving(groups, 1)
        forged = json.dumps({"metadata": {}, "spec": {"containers": [{"name": "worker", "image": "forged"}]}})
        bed.kubectl("annotate", "statefulset/chat-0", f"octavo.dev/pod-template={forged}", "-n", space)
        change = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "forged"}]
        bed.kubectl("patch", "statefulset", "chat-0", "-n", space, "--type=json", "-p", json.dumps(change))
        wait_until(lambda: groups.named("good"), PATIENCE_S, "the image is set back")
        bed.kubectl("scale", "infsvc/chat", "--replicas=2", "-n", space)
        wait_until(lambda: len(groups.named("good")) == 2, PATIENCE_S, "another group of the kept template")
        assert not groups.named("forged")


def test_a_kept_template_of_another_client_is_not_applied_and_is_written_again(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    """Also where the client's object has no label, so that the operator meets it only by its name."""
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(image="good"), namespace=space)
        serving(groups, 1)
        for replicas, has_label in ((2, True), (3, False)):
            _forge(bed, space, groups, has_label)
            groups.patch(replicas=replicas)
            wait_until(lambda: len(groups.named("good")) == replicas, PATIENCE_S, "a group of the spec's template")  # noqa: B023
            wait_until(lambda: _kept_image(groups) == "good", PATIENCE_S, "the template is written again")
            assert not groups.named("forged")


def _forge(bed: Bed, space: str, groups: Groups, has_label: bool) -> None:
    (kept,) = groups.revisions()
    meta = {key: kept["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    if not has_label:
        del meta["labels"]["octavo.dev/service"]
    kept["data"]["spec"]["template"]["spec"]["containers"][0]["image"] = "forged"
    bed.client.delete("controllerrevision", meta["name"], space)
    bed.apply({**kept, "metadata": meta}, namespace=space)


def _kept_image(groups: Groups) -> str:
    return "".join(image_of({"spec": {"template": item["data"]["spec"]["template"]}}) for item in groups.revisions())


def test_a_note_of_another_client_is_not_believed(bed: Bed, space: str, groups: Groups, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(image="good", replicas=2), namespace=space)
        serving(groups, 2)
        (kept,) = groups.revisions()
        name, back = kept["metadata"]["name"], {"to": "0123456789", "at": "2026-01-01T00:00:00Z"}
        notes = {
            f"controllerrevision/{name}": f"octavo.dev/rollout={json.dumps({'rollback': {**back, 'reason': 'A'}})}",
            "statefulset/chat-0": 'octavo.dev/gang-backoff={"attempts": 3, "until": "2999-01-01T00:00:00Z"}',
            "statefulset/chat-1": "octavo.dev/served=false",
        }
        for item, note in notes.items():
            bed.kubectl("annotate", item, note, "--overwrite", "-n", space)
        wait_until(lambda: _note(bed, space, "statefulset", "chat-1", "served") == "true", PATIENCE_S, "it is put back")
        wait_until(
            lambda: '"completed": true' in _note(bed, space, "controllerrevision", name, "rollout"),
            PATIENCE_S,
            "record",
        )
        settled(bed, space, quiet_s=1.5)
        for group in ("chat-0", "chat-1"):
            found = bed.get("statefulset", group, space)
            assert found is not None and found["spec"]["replicas"] == 1
        assert condition(bed, space, "Degraded")["reason"] != "RolledBack"


def _note(bed: Bed, space: str, kind: str, name: str, key: str) -> str:
    found = bed.get(kind, name, space) or {"metadata": {}}
    return str((found["metadata"].get("annotations") or {}).get(f"octavo.dev/{key}", ""))


def test_what_lost_our_label_is_found_and_gets_it_back(bed: Bed, space: str, groups: Groups, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space, "--worker-image", "one") as first:
        bed.apply(service(), namespace=space)
        serving(groups, 1, "one")
        settled(bed, space, quiet_s=1.0)
        first.kill()
    (kept,) = groups.revisions()
    name, label = kept["metadata"]["name"], "octavo.dev/service"
    for kind, item in (("statefulset", "chat-0"), ("controllerrevision", name), ("deployment", "chat-router")):
        bed.kubectl("label", kind, item, f"{label}-", "-n", space)
    bed.client.delete("lease", "octavo-operator", space)
    with operator(bed.kubeconfig, tmp_path, space, "--worker-image", "two"):
        for kind, item in (("statefulset", "chat-0"), ("controllerrevision", name), ("deployment", "chat-router")):
            wait_until(lambda: has_label(bed, space, kind, item), PATIENCE_S, f"{kind} {item} has its label")  # noqa: B023
        bed.kubectl("label", "statefulset", "chat-0", f"{label}-", "octavo.dev/group-", "-n", space)
        wait_until(lambda: has_label(bed, space, "statefulset", "chat-0"), PATIENCE_S, "it is healed at any time")
        bed.kubectl("scale", "infsvc/chat", "--replicas=2", "-n", space)
        wait_until(lambda: len(groups.named("one")) == 2, PATIENCE_S, "another group of the kept template")


def has_label(bed: Bed, space: str, kind: str, name: str) -> bool:
    found = bed.get(kind, name, space)
    return found is not None and found["metadata"].get("labels", {}).get("octavo.dev/service") == "chat"


def test_kept_revisions_are_pruned_and_go_with_the_service(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(image="good", rollout={"historyLimit": 1}), namespace=space)
        serving(groups, 1)
        for number in range(4):
            groups.patch(image=f"bad-{number}", router={"queue": {"maxRequests": 10 + number}})
            wait_until(lambda: groups.named(f"bad-{number}"), PATIENCE_S, "it is tried")  # noqa: B023
        wait_until(lambda: len(groups.revisions()) == 3, PATIENCE_S, "good, the present one, and one more")
        wait_until(lambda: len(groups.revisions("router")) == 2, PATIENCE_S, "the present one, and one more")
        images = [item["data"]["spec"]["template"]["spec"]["containers"][0]["image"] for item in groups.revisions()]
        assert "good" in images and "bad-3" in images
    bed.kubectl("delete", "infsvc", "chat", "-n", space, "--timeout=20s")
    wait_until(lambda: not groups.revisions(), PATIENCE_S, "they are gone")


def test_a_surge_that_has_never_served_is_left_out_of_the_budget(
    bed: Bed, space: str, groups: Groups, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(image="good"), namespace=space)
        serving(groups, 1)
        wait_until(lambda: allowed(bed, space) == 1, PATIENCE_S, "the only group may be evicted")
        groups.patch(image="bad")
        wait_until(lambda: groups.named("bad"), PATIENCE_S, "a surge that does not serve")
        wait_until(lambda: bed.get("pod", "chat-1-0", space), PATIENCE_S, "its pod")
        settled(bed, space, quiet_s=2.0)
        wait_until(lambda: allowed(bed, space) == 1, PATIENCE_S, "it still may")


def allowed(bed: Bed, space: str) -> int:
    """Evictions that the budget allows now, as the API server's controllers compute it."""
    budget = bed.get("poddisruptionbudget", "chat-workers", space) or {}
    status = budget.get("status", {})
    is_current = status.get("observedGeneration") == budget.get("metadata", {}).get("generation")
    return int(status.get("disruptionsAllowed", -1)) if is_current else -1
