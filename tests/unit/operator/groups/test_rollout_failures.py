"""Whatever fails, whatever is edited and whenever the operator looks: a rollout takes no group that serves below the
least number, and no group that has served while its successor does not."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.groups.names import SERVED, annotation

IMAGES = ["good", "better", "bad", "bad-too"]
LIMITS = st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(lambda pair: sum(pair) > 0)
WHAT = ["look"] * 6 + ["event"] * 6 + ["blip", "blip", "break", "pod", "time", "image", "replicas", "policy", "status"]


class Watched(TinyCluster):
    """A cluster that checks each look of the operator."""

    def look(self) -> None:
        """A look of the operator, and that it deletes nothing that it must not."""
        spec = self.resource["spec"]
        limits = spec["rollout"]
        least = max(0, spec["replicas"] - limits["maxUnavailable"])
        serving = self.groups_serving()
        served = serving | {name for name, item in self.sets.items() if annotation(item, SERVED) == "true"}
        images = {name: self.image(name) for name in self.sets}
        uids = {item["metadata"]["uid"] for item in self.sets.values()}
        planned = self.reconcile()
        deleted = {gone.name for gone in planned.delete if gone.kind == "StatefulSet"}
        assert len(serving - deleted) >= min(len(serving), least)
        assert planned.status is not None
        target = self._target(planned.status)
        if not any(images[name] == target for name in serving):
            assert len(served - deleted) >= min(len(served), least), "nothing serves in their place"
        created = {name for name, item in self.sets.items() if item["metadata"]["uid"] not in uids}
        assert not created or len(self.taken()) <= spec["replicas"] + limits["maxSurge"]

    def _target(self, status: dict[str, object]) -> str:
        """Image of the revision that the groups are to have."""
        back = status.get("rollback")
        revision = back["revision"] if isinstance(back, dict) else status["revision"]
        kept = self.revisions[f"chat-{revision}"]
        return str(kept["data"]["spec"]["template"]["spec"]["containers"][0]["image"])


def misfortune(tiny: Watched, what: str, data: st.DataObject) -> None:
    """One thing that happens to a service, drawn where there is a choice."""

    def drawn(choices: Sequence[Any]) -> Any:  # Any: one of them
        return data.draw(st.sampled_from(choices))

    def broken(how: Callable[[str], None], names: Iterable[str]) -> None:
        if found := sorted(names):
            how(drawn(found))

    rollout = tiny.resource["spec"]["rollout"]
    happen: dict[str, Callable[[], object]] = {
        "look": tiny.look,
        "event": lambda: tiny.advance(drawn),
        "blip": lambda: broken(tiny.blip, tiny.groups_serving()),
        "break": lambda: broken(tiny.break_for_good, tiny.groups_serving()),
        "pod": lambda: broken(tiny.delete_pod, tiny.pods),
        "time": lambda: tiny.wait(drawn([5.0, 120.0, 700.0, 2000.0])),
        "image": lambda: tiny.edit(image=drawn(IMAGES)),
        "bad": lambda: tiny.edit(image=drawn(["bad", "bad-too", "bad-again"])),
        "replicas": lambda: tiny.edit(replicas=drawn([1, 2, 3, 4, 5])),
        "policy": lambda: tiny.edit(rollout={**rollout, "onFailure": drawn(["pause", "rollback"])}),
        "status": lambda: tiny.resource.pop("status", None),
    }
    happen[what]()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), replicas=st.integers(1, 4), limits=LIMITS, first=st.sampled_from(IMAGES))
def test_no_history_of_failures_edits_and_scale_changes_costs_a_group_that_serves(
    data: st.DataObject, replicas: int, limits: tuple[int, int], first: str
) -> None:
    rollout = {"maxSurge": limits[0], "maxUnavailable": limits[1], "onFailure": "rollback"}
    tiny = Watched(resource(image=first, replicas=replicas, rollout=rollout))
    tiny.settle()
    for _ in range(data.draw(st.integers(10, 60))):
        misfortune(tiny, data.draw(st.sampled_from(WHAT)), data)
    tiny.edit(image="last", replicas=2)
    tiny.broken.clear()
    for _ in range(4):
        tiny.settle()
        tiny.wait(700)
    assert tiny.images() == ["last", "last"]
    assert tiny.serving() == 2 == len(tiny.taken())


@settings(max_examples=30, deadline=None)
@given(data=st.data(), replicas=st.integers(1, 4))
def test_groups_of_the_good_revision_all_serve_on_while_every_edit_is_bad(data: st.DataObject, replicas: int) -> None:
    tiny = Watched(resource(image="good", replicas=replicas, rollout={"maxSurge": 1, "maxUnavailable": 0}))
    tiny.settle()
    good = tiny.groups_serving()
    for _ in range(data.draw(st.integers(10, 50))):
        what = data.draw(st.sampled_from(["look", "look", "event", "event", "blip", "pod", "time", "bad", "status"]))
        misfortune(tiny, what, data)
    tiny.settle()
    assert tiny.groups_serving() == good and len(good) == replicas
