"""Two operators whose namespaces overlap, as in a migration from one scope to the other: one writes at any time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import Operator, operator, service, settled, writes
from support.patience import PATIENCE_S

OTHERS = "octavo_operator_namespaces_of_others"


@pytest.fixture
def home(bed: Bed) -> Iterator[str]:
    """The namespace of the operator of more namespaces."""
    with bed.namespace("home") as name:
        yield name


def holder(bed: Bed, space: str) -> str:
    return str((bed.get("lease", "octavo-operator", space) or {"spec": {}})["spec"].get("holderIdentity", ""))


def policy(bed: Bed, space: str) -> str:
    """Which operator has written the policy: it names the namespace of the operator's pods."""
    return str(bed.get("networkpolicy", "chat-workers", space))


def reported(bed: Bed, space: str) -> list[str]:
    events = bed.objects("events", space)
    return [event["message"] for event in events if event["reason"] == "OtherOperator"]


@pytest.mark.timeout(500)
def test_of_two_operators_of_a_namespace_one_writes_and_the_other_takes_over(
    bed: Bed, space: str, home: str, tmp_path: Path
) -> None:
    wide = ("--namespace", space)
    with operator(bed.kubeconfig, tmp_path, space) as narrow:
        bed.apply(service(), namespace=space)
        settled(bed, space, quiet_s=1.5)
        with operator(bed.kubeconfig, tmp_path, home, *wide) as broad:
            wait_until(lambda: broad.metric(OTHERS) == 1, PATIENCE_S, "it counts the namespace")
            wait_until(lambda: reported(bed, space), PATIENCE_S, "an event on the Lease")
            assert holder(bed, space) in reported(bed, space)[0]
            assert f"the services of the namespace {space} are left alone: {holder(bed, space)} holds the lease" in (
                broad.log.read_text()
            )
            bed.kubectl("scale", "infsvc/chat", "--replicas=2", "-n", space)
            wait_until(lambda: bed.get("statefulset", "chat-1", space), PATIENCE_S, "the first acts")
            assert "apply" not in broad.log.read_text() and home not in policy(bed, space)
            bed.apply(service("own"), namespace=home)
            wait_until(lambda: bed.get("statefulset", "own-0", home), PATIENCE_S, "the second acts elsewhere")
            assert narrow.stop() == 0
            _takes_over(bed, space, home, broad)
            _stays(bed, space, home, broad, tmp_path)


def _takes_over(bed: Bed, space: str, home: str, broad: Operator) -> None:
    wait_until(lambda: holder(bed, space) == f"{home}/octavo-operator", PATIENCE_S, "the second has the Lease")
    wait_until(lambda: home in policy(bed, space), PATIENCE_S, "the second has written")
    wait_until(lambda: broad.metric(OTHERS) == 0, PATIENCE_S, "it counts none")


def _stays(bed: Bed, space: str, home: str, broad: Operator, tmp_path: Path) -> None:
    """Another operator of the namespace stands by, until the broad one ends."""
    with operator(bed.kubeconfig, tmp_path, space) as again:
        wait_until(lambda: again.metric(OTHERS) == 1, PATIENCE_S, "it counts the namespace")
        wait_until(
            lambda: any(f"{home}/octavo-operator holds" in text for text in reported(bed, space)), PATIENCE_S, "event"
        )
        settled(bed, space, quiet_s=1.5)
        offset = bed.audit_log.stat().st_size
        bed.kubectl("scale", "infsvc/chat", "--replicas=3", "-n", space)
        wait_until(lambda: bed.get("statefulset", "chat-2", space), PATIENCE_S, "the broad one acts")
        settled(bed, space, quiet_s=3.0)
        made = [line.strip() for line in writes(bed, space, offset)]
        assert made.count("patch statefulsets/chat-2") == 1 and not again.leads, made
        assert broad.stop() == 0
        wait_until(lambda: again.leads, PATIENCE_S, "the one of the namespace leads")
        wait_until(lambda: home not in policy(bed, space), PATIENCE_S, "and writes")
        wait_until(lambda: again.metric(OTHERS) == 0, PATIENCE_S, "it counts none")
