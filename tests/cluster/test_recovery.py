"""What Kubernetes or chance takes away comes back by itself, and what had not begun to stream is answered."""

import time

import pytest
from support.cluster.bed import wait_until
from support.cluster.deployed import Service
from support.cluster.traffic import Stream, Traffic

RANK_S, POD_S = 20.0, 60.0  # twice what a recovery may take
REPORTED_S = 140.0  # twice what the operator takes to ask a pod that was ready each time it looked
LONG = 1_500  # tokens


def test_a_killed_rank_is_replaced_inside_its_pod(letters: Service, capsys: pytest.CaptureFixture[str]) -> None:
    before = letters.pods()
    with Traffic(letters.client()) as traffic:
        cut = Stream(letters.address, 60_000).wait_begun()
        killed = time.monotonic()
        letters.kill("rank")
        cut.wait_end(RANK_S).assert_cut_with_one_error()
        wait_until(lambda: any(at > killed + 1 for at in traffic.answered), RANK_S, "answers")
        letters.settled()
        gap_s = traffic.longest_gap_s(killed)
    with capsys.disabled():
        print(f"\nrank killed: {gap_s:.1f} s without an answer")
    assert gap_s <= RANK_S
    assert letters.pods() == before
    failure = wait_until(lambda: letters.object()["status"]["groups"][0].get("lastFailure"), REPORTED_S, "the cause")
    assert failure["reason"] == "RankExited"
    assert letters.object()["status"]["groups"][0]["restarts"] >= 1


def test_a_deleted_pod_finishes_its_streams_and_comes_back(
    letters: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    with Traffic(letters.client()) as traffic:
        stream = Stream(letters.address, LONG).wait_begun()
        (pod, uid), *_ = letters.pods().items()
        letters.release.kubectl("delete", "pod", pod, "--wait=false")
        stream.wait_end(100).assert_whole(LONG)
        ended = time.monotonic()
        wait_until(lambda: letters.pods().get(pod) not in (None, uid), POD_S, "a new pod")
        letters.settled()
        gap_s = traffic.longest_gap_s(ended)
    with capsys.disabled():
        print(f"\npod deleted: {gap_s:.1f} s without an answer after its last stream")
    assert gap_s <= POD_S


def test_a_pod_that_is_gone_at_once_cuts_streams_with_one_error_and_comes_back(
    letters: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    with Traffic(letters.client()) as traffic:
        stream = Stream(letters.address, 60_000).wait_begun()
        (pod, uid), *_ = letters.pods().items()
        killed = time.monotonic()
        letters.release.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
        stream.wait_end(30).assert_cut_with_one_error()
        wait_until(lambda: letters.pods().get(pod) not in (None, uid), POD_S, "a new pod")
        letters.settled()
        gap_s = traffic.longest_gap_s(killed)
    with capsys.disabled():
        print(f"\npod gone at once: {gap_s:.1f} s without an answer")
    assert gap_s <= POD_S


def test_a_deleted_statefulset_is_made_again(letters: Service) -> None:
    before = letters.groups()
    with Traffic(letters.client()):
        letters.release.kubectl("delete", "statefulset", *before, "--wait=false")
        wait_until(lambda: set(letters.groups().values()) - set(before.values()), POD_S, "another StatefulSet")
        letters.settled()
    assert not set(letters.groups().values()) & set(before.values())


def test_deleted_services_and_routers_come_back(letters: Service) -> None:
    letters.release.kubectl("delete", "service/letters", "service/letters-leaders", "deployment/letters-router")
    wait_until(lambda: letters.release.bed.get("service", "letters", letters.release.namespace), 30, "the Service")
    letters.settled()
    with Traffic(letters.client()) as traffic:
        wait_until(lambda: len(traffic.answered) > 3, 30, "answers")


def test_conditions_of_a_service_that_no_client_changes_stay_the_same(letters: Service) -> None:
    time.sleep(3)
    before = letters.object()
    with Traffic(letters.client(), clients=1, pause_s=0.5):
        time.sleep(15)
    assert letters.object()["status"] == before["status"]
    assert letters.object()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
