"""Of two operators one acts; the other takes over."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from support.cluster.bed import Bed, wait_until
from support.cluster.operators import operator, service


def test_of_two_operators_one_acts(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space) as one, operator(bed.kubeconfig, tmp_path, space) as two:
        bed.apply(service(), namespace=space)
        wait_until(lambda: bed.get("statefulset", "chat-0", space), 20, "the group")
        time.sleep(3)
        assert sorted([one.leads, two.leads]) == [False, True]
        idle = two if one.leads else one
        assert "apply" not in idle.log.read_text()


def test_a_clean_stop_hands_over_at_once(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space) as one:
        wait_until(lambda: one.leads, 10, "the first leads")
        with operator(bed.kubeconfig, tmp_path, space) as two:
            assert one.stop() == 0
            wait_until(lambda: two.leads, 6, "the second leads")


def test_a_crash_hands_over_within_the_duration_of_the_lease(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space) as one:
        wait_until(lambda: one.leads, 10, "the first leads")
        with operator(bed.kubeconfig, tmp_path, space) as two:
            one.kill()
            bed.apply(service(), namespace=space)
            wait_until(lambda: two.leads, 60, "the second leads")  # it may have to start yet
            wait_until(lambda: bed.get("statefulset", "chat-0", space), 20, "what changed meanwhile is acted on")


def test_a_frozen_leader_does_not_write_when_it_wakes(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space) as one:
        wait_until(lambda: one.leads, 10, "the first leads")
        with operator(bed.kubeconfig, tmp_path, space) as two:
            one.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: two.leads, 60, "the second leads")  # it may have to start yet
            bed.apply(service(), namespace=space)
            one.process.send_signal(signal.SIGCONT)
            wait_until(lambda: bed.get("statefulset", "chat-0", space), 20, "the group")
            wait_until(lambda: not one.leads, 10, "the first gives up")
            assert "apply" not in one.log.read_text()


def test_an_operator_refuses_wrong_flags() -> None:
    command = [sys.executable, "-m", "octavo", "operator", "--image-pull-policy", "Sometimes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--image-pull-policy" in done.stderr
