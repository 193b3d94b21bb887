"""Groups of several ranks and pods answer as one rank does, and come back whole from the loss of any part."""

import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.cluster.bed import Cluster, wait_until
from support.cluster.deployed import ROOT, Release, Service
from support.cluster.traffic import Stream, Traffic
from support.patience import Bound

BUNDLED = "bundled://smollm2-135m-instruct"
SHAPES: dict[str, dict[str, Any]] = {
    "pipeline": {"parallelism": {"pipeline": 2}},
    "tensor": {"parallelism": {"tensor": 3}},
    "grid": {"parallelism": {"pipeline": 2, "tensor": 3}},
    "spread": {"parallelism": {"tensor": 3}, "accelerator": {"perPod": 1}},
}
PROMPTS = ("The capital of France is", "Water boils at", "def add(a, b):\n", "Once upon a time, there was a king")
TOKENS = 16
START_S = 120.0  # six processes with PyTorch on two cores
JOIN, STATUS, LINK = 8501, 8502, 8601
LINE: dict[str, Any] = {
    "replicas": 1,
    "engine": {"kvCacheMemory": "128Mi"},
    "parallelism": {"pipeline": 2},
    "resources": {"requests": {"cpu": "50m"}, "limits": {"memory": "1Gi"}},
}
LONG, ENDLESS = 1_500, 60_000  # tokens
RANK_S, POD_S, NODE_S = 20.0, 60.0, 180.0  # twice what a recovery may take
NAMED_S = 60.0


def texts(service: Service) -> list[str]:
    """Greedy answers, asked for at once."""
    client = service.client()

    def ask(prompt: str) -> str:
        answer = client.completions.create(model=service.name, prompt=prompt, max_tokens=TOKENS, temperature=0)
        return answer.choices[0].text

    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        return list(threads.map(ask, PROMPTS))


@pytest.fixture(scope="module")
def expected(octavo: Release) -> list[str]:
    """What one rank answers."""
    octavo.kubectl("apply", "-f", str(ROOT / "examples" / "minimal.yaml"))
    chat = Service(octavo, "chat")
    chat.settled(timeout_s=START_S)
    answers = texts(chat)
    chat.delete()
    assert len(set(answers)) == len(PROMPTS)
    return answers


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_tokens_of_one_rank(octavo: Release, expected: list[str], shape: str) -> None:
    example = ROOT / "examples" / f"{shape}.yaml"
    service = Service(octavo, shape)
    if example.exists():
        octavo.kubectl("apply", "-f", str(example))
    else:
        service.apply(BUNDLED, engine={"kvCacheMemory": "64Mi"}, **SHAPES[shape])
    service.settled(timeout_s=START_S)
    assert service.object()["spec"]["parallelism"] == {"pipeline": 1, "tensor": 1} | SHAPES[shape]["parallelism"]
    assert texts(service) == expected
    service.delete()


@pytest.fixture(scope="module")
def rank_s(octavo: Release) -> float:
    """Twice the aim for a lost rank; where tests share a busy machine, twice what the first start has taken."""
    began = time.monotonic()
    octavo.service("line", **LINE).settled(timeout_s=START_S)
    return max(RANK_S, 2 * (time.monotonic() - began))


@pytest.fixture
def line(octavo: Release, rank_s: float) -> Service:
    """A service of one group of two stages, each in a pod, that serves; tests share it, and each finds it as new."""
    service = octavo.service("line", **LINE)
    service.settled()
    return service


def traffic(service: Service) -> Traffic:
    return Traffic(service.client(), model=service.name)


def begun(service: Service, tokens: int) -> Stream:
    return Stream(service.address, tokens, model=service.name).wait_begun()


def last_failure(service: Service, index: int = 0) -> dict[str, Any]:
    return dict(service.object()["status"]["groups"][index].get("lastFailure", {}))


def found(service: Service, pod: str) -> dict[str, Any]:
    there = service.release.bed.get("pod", pod, service.release.namespace)
    assert there is not None
    return there


def node_of(service: Service, pod: str) -> str:
    return str(found(service, pod)["spec"]["nodeName"])


def test_no_port_of_a_group_talks_to_a_peer_without_a_certificate_of_the_service(line: Service) -> None:
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    stranger.set_alpn_protocols(["h2"])
    for pod, port in (("line-0-0", JOIN), ("line-0-0", STATUS), ("line-0-0", LINK), ("line-0-1", LINK)):
        plain = socket.create_connection((found(line, pod)["status"]["podIP"], port), timeout=10)
        with stranger.wrap_socket(plain) as connection:
            try:
                heard = connection.recv(1)
            except ssl.SSLError as error:
                assert error.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
            else:
                assert heard == b"", f"{pod}:{port} talks"


def test_a_deleted_pod_that_does_not_lead_drains_its_group_which_comes_back(
    line: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    before = line.pods()
    with traffic(line) as clients:
        stream = begun(line, LONG)
        line.release.kubectl("delete", "pod", "line-0-1", "--wait=false")
        stream.wait_end(100).assert_whole(LONG)
        ended = time.monotonic()
        wait_until(lambda: line.pods().get("line-0-1") not in (None, before["line-0-1"]), POD_S, "a new pod")
        line.settled()
        gap_s = clients.longest_gap_s(ended)
    with capsys.disabled():
        print(f"\npod deleted: {gap_s:.1f} s without an answer after its group's last stream")
    assert gap_s <= POD_S
    assert line.pods()["line-0-0"] == before["line-0-0"]


def test_a_killed_rank_of_any_pod_is_named_and_its_group_serves_again(
    line: Service, rank_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    before = line.pods()
    for rank, pod in enumerate(("line-0-0", "line-0-1")):
        with traffic(line) as clients:
            cut = begun(line, ENDLESS)
            killed = time.monotonic()
            line.kill("rank", pod)
            cut.wait_end(rank_s).assert_cut_with_one_error()
            wait_until(lambda since=killed + 1: any(at > since for at in clients.answered), rank_s, "answers")
            line.settled()
            gap_s = clients.longest_gap_s(killed)
        with capsys.disabled():
            print(f"\nrank {rank} killed: {gap_s:.1f} s without an answer")
        assert gap_s <= rank_s
        failure = last_failure(line)
        assert (failure["pod"], failure["rank"], failure["reason"], failure["exitCode"]) == (
            pod,
            rank,
            "RankExited",
            -9,
        )
    assert line.pods() == before


def test_a_rank_that_the_kernel_kills_for_memory_in_the_second_pod_is_named(line: Service) -> None:
    # Of four processes too many the rank is the largest, and without it there is room for the others.
    eat = "for _ in 1 2 3; do python -c 'import time; all = bytes([1]) * (230 << 20); time.sleep(2)' & done; wait"
    before = line.pods()
    with traffic(line):
        line.release.kubectl("exec", "line-0-1", "--", "sh", "-c", eat)
        failure = wait_until(
            lambda: last_failure(line).get("reason") == "OOMKilled" and last_failure(line), NAMED_S, "OOM"
        )
        line.settled()
    assert (failure["pod"], failure["rank"]) == ("line-0-1", 1)
    assert "resources.limits.memory" in failure["message"]
    assert line.pods() == before


def test_without_the_operator_a_group_bears_a_killed_rank_and_a_lost_pod(line: Service, rank_s: float) -> None:
    here = line.release
    here.operators(0)
    try:
        with traffic(line) as clients:
            for loss, limit_s in (("rank", rank_s), ("pod", POD_S)):
                lost = time.monotonic()
                if loss == "rank":
                    line.kill("rank", "line-0-1")
                else:
                    here.kubectl("delete", "pod", "line-0-1", "--grace-period=0", "--force", "--wait=false")
                wait_until(
                    lambda since=lost + 3: any(at > since for at in clients.answered), limit_s, f"after the {loss}"
                )
    finally:
        here.operators(2)
    line.settled()


def test_a_pod_that_is_gone_at_once_cuts_its_groups_streams_and_no_other_request(line: Service, rank_s: float) -> None:
    line.apply(**LINE | {"replicas": 2})
    line.settled(2)
    gone = line.pods()["line-0-1"]
    with traffic(line) as clients:
        streams = [begun(line, LONG) for _ in range(6)]
        killed = time.monotonic()
        line.release.kubectl("delete", "pod", "line-0-1", "--grace-period=0", "--force", "--wait=false")
        answers = [stream.wait_end(100) for stream in streams]
        cut = [answer for answer in answers if answer.errors or answer.broken]
        for answer in answers:
            if answer in cut:
                answer.assert_cut_with_one_error()
            else:
                answer.assert_whole(LONG)
        assert 0 < len(cut) < len(streams), f"{len(cut)} of {len(streams)} were of the lost group"
        wait_until(lambda: line.pods().get("line-0-1") not in (None, gone), POD_S, "a new pod")
        line.settled(2, POD_S)
        assert clients.longest_gap_s(killed) < rank_s, "the other group answers"


def test_a_group_of_which_one_pod_finds_no_node_says_which_and_why_and_can_be_mended(octavo: Release) -> None:
    one_fits = {
        "accelerator": {"nodeSelector": {"kubernetes.io/hostname": "node2"}},
        "resources": {"requests": {"cpu": "1100m"}},
    }
    partial = octavo.service("partial", **LINE | one_fits)
    message = partial.wait("Ready", "False", "Unschedulable", NAMED_S)["message"]
    pods = octavo.bed.objects("pods", octavo.namespace, partial.selector("worker"))
    lone = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
    assert len(pods) == 2
    assert len(lone) == 1
    assert lone[0] in message
    assert "cpu" in message
    partial.apply(**LINE)
    partial.settled()
    partial.delete()


def split(line: Service, away: str) -> None:
    """Puts the pod `away` and the router on node2, and the other pod on node1."""
    cluster = line.release.bed
    (stays,) = set(line.pods()) - {away}
    for node, other, pods in (("node1", "node2", [stays]), ("node2", "node1", [away, *line.pods("router")])):
        if not (elsewhere := [pod for pod in pods if node_of(line, pod) != node]):
            continue
        cluster.kubectl("cordon", other)
        try:
            line.release.kubectl("delete", "pod", *elsewhere, "--timeout=100s")
            line.settled()
        finally:
            cluster.kubectl("uncordon", other)
    placed = {pod: node_of(line, pod) for pod in (stays, away, *line.pods("router"))}
    assert placed.pop(stays) == "node1"
    assert set(placed.values()) == {"node2"}


@pytest.mark.parametrize("away", ["line-0-1", "line-0-0"])
def test_a_group_with_a_pod_on_a_lost_node_serves_again_elsewhere(
    line: Service, cluster: Cluster, away: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node that is cut off takes its pods with it; where only the kubelet is gone, they go on."""
    split(line, away)
    before = line.pods()
    act, lost, back = (cluster.net, "down", "up") if away == "line-0-1" else (cluster.kubelet, "stop", "start")
    bound = Bound(NODE_S)
    act("node2", lost)
    try:
        wait_until(lambda: line.pods().get(away) != before[away], NODE_S, "the pod is made again")
        line.settled(timeout_s=NODE_S)
        with traffic(line) as clients:
            wait_until(lambda: len(clients.answered) > 5, 60, "answers")
        assert not bound.over, bound
        took_s = bound.kept()
    finally:
        act("node2", back)
        cluster.ready("node2")
    with capsys.disabled():
        print(f"\n{away}: serving again {took_s:.1f} s after its node's {act.__name__} was lost")
    line.settled()


# The last test that shares `line`: its group has another name from here on.
def test_a_wrong_image_leaves_the_old_pods_serving_and_a_right_change_replaces_them(line: Service) -> None:
    before = line.pods()
    with traffic(line):
        line.apply(**LINE | {"image": "localhost/octavo-worker:missing"})
        assert "line-1-" in line.wait("Degraded", "True", "ImagePullBackOff", NAMED_S)["message"]
        assert line.answers() and not line.condition("Ready"), "by pods of the spec before"
        line.apply(**LINE)
        line.settled()
        assert line.pods() == before
        line.apply(**LINE | {"engine": {"kvCacheMemory": "128Mi", "maxRequests": 8}})
        line.settled()
    assert not set(before.values()) & set(line.pods().values())
