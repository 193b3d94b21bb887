"""What happened while a watch was broken is caught up; a broken API server does not need a restart of the operator."""

import time
from pathlib import Path

import pytest
from support.cluster.api_proxy import ApiProxy
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import operator, service, settled


def test_objects_that_vanish_while_the_watch_is_cut_come_back(bed: Bed, space: str, tmp_path: Path) -> None:
    with ApiProxy(bed.kubeconfig, tmp_path) as proxy, operator(proxy.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        settled(bed, space)
        proxy.cut()
        bed.kubectl("delete", "statefulset/chat-0", "service/chat", "service/chat-leaders", "-n", space)
        bed.kubectl("delete", "infsvc", "--all", "-n", space)
        bed.apply(service("other"), namespace=space)
        time.sleep(3)
        proxy.heal()
        wait_until(lambda: bed.get("statefulset", "other-0", space), 60, "the service made meanwhile has its group")
        wait_until(
            lambda: not bed.objects("statefulsets", space, "octavo.dev/service=chat"), 30, "chat's objects are gone"
        )
        time.sleep(3)
        assert bed.get("statefulset", "chat-0", space) is None  # an operator that still believed in chat would make it


def test_deleted_children_come_back_after_a_cut(bed: Bed, space: str, tmp_path: Path) -> None:
    with ApiProxy(bed.kubeconfig, tmp_path) as proxy, operator(proxy.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        settled(bed, space)
        proxy.cut()
        bed.kubectl("delete", "statefulset/chat-0", "service/chat", "deployment/chat-router", "-n", space)
        time.sleep(2)
        proxy.heal()
        for kind, name in (("service", "chat"), ("deployment", "chat-router")):
            wait_until(lambda: bed.get(kind, name, space), 60, f"{kind} {name} is back")  # noqa: B023
        wait_until(lambda: _groups(bed, space), 60, "the group is back")
        settled(bed, space)
        # A new index where the operator hears of the StatefulSet before it hears that the pods are gone, too.
        assert _groups(bed, space) in (["chat-0"], ["chat-1"])


def _groups(bed: Bed, space: str) -> list[str]:
    return [item["metadata"]["name"] for item in bed.objects("statefulsets", space, "octavo.dev/service=chat")]


@pytest.mark.timeout(300)
def test_ten_resets_of_all_connections_leave_the_operator_at_work(bed: Bed, space: str, tmp_path: Path) -> None:
    with ApiProxy(bed.kubeconfig, tmp_path) as proxy, operator(proxy.kubeconfig, tmp_path, space) as one:
        for _ in range(10):
            proxy.cut()
            time.sleep(0.4)
            proxy.heal()
            time.sleep(0.1)
        bed.apply(service(), namespace=space)
        wait_until(lambda: bed.get("statefulset", "chat-0", space), 90, "the group of a service made after the resets")
        bed.kubectl("scale", "infsvc/chat", "--replicas=2", "-n", space)
        wait_until(lambda: bed.get("statefulset", "chat-1", space), 90, "the second group")
        assert one.process.poll() is None
