"""When an incarnation has failed though every process exists: silence, a step that does not return, a load that stalls.

PURE: it judges what the board showed. A supervisor that was itself held up (a frozen container, a starved machine)
judges no process for as long as one may be silent, because then the board is as old as its own absence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.shared.failure_reasons import FailureReason, stuck

SILENCE_S = 5.0
LOADING_S = 120.0
STOPPED_S = 3.0
LATE_CHECK_S = 2.0  # between two checks; normally 0.25 s
_NS = 1e9


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """One process as the board shows it. rank: -1 for serve and core. Times are monotonic ns; 0 is never. finished:
    its last step. beats: whether silence ends the incarnation; a rank's only says which to blame."""

    name: str
    rank: int
    heartbeat_ns: int
    phase: int
    progress: int
    deadline_ns: int = 0
    finished: int = 0
    beats: bool = True


@dataclass(frozen=True, slots=True)
class Violation:
    """Why an incarnation must end."""

    reason: FailureReason
    rank: int
    message: str


@dataclass(frozen=True, slots=True)
class Watch:
    """What was seen last. progress: the phases and percentages; since_ns: when they last changed."""

    checked_ns: int
    since_ns: int
    progress: tuple[tuple[int, int], ...] = ()
    blind_until_ns: int = 0


def check(
    watch: Watch, processes: Sequence[ProcessHealth], serving: bool, now_ns: int
) -> tuple[Watch, Violation | None]:
    """The watch after this check, and a violation if the incarnation must end."""
    blind_until = watch.blind_until_ns
    if now_ns - watch.checked_ns > LATE_CHECK_S * _NS:
        blind_until = int(now_ns + SILENCE_S * _NS)
    progress = tuple((health.phase, health.progress) for health in processes)
    since = now_ns if progress != watch.progress or serving else watch.since_ns
    after = Watch(now_ns, since, progress, blind_until)
    if now_ns < blind_until:
        return after, None
    return after, _silent(processes, now_ns) or _overdue(processes, now_ns) or _stalled(after, processes, serving)


def _silent(processes: Sequence[ProcessHealth], now_ns: int) -> Violation | None:
    for health in processes:
        silence_s = (now_ns - health.heartbeat_ns) / _NS
        if health.beats and health.heartbeat_ns and silence_s > SILENCE_S:
            text = f"{health.name} was silent for {silence_s:.1f} s"
            return Violation(stuck(health.name), health.rank, text)
    return None


def _overdue(processes: Sequence[ProcessHealth], now_ns: int) -> Violation | None:
    for health in processes:
        if health.deadline_ns and now_ns > health.deadline_ns:
            late_s = (now_ns - health.deadline_ns) / _NS
            blamed = _blamed(processes, now_ns)
            text = f"a step did not return from rank {blamed} within its limit ({late_s:.1f} s over it)"
            return Violation(FailureReason.RANK_STUCK, blamed, text)
    return None


def _blamed(processes: Sequence[ProcessHealth], now_ns: int) -> int:
    """Ranks that wait for a stuck one are as late as it: blame a stopped one, else that with the fewest steps."""
    ranks = [health for health in processes if health.rank >= 0]
    stopped = [health for health in ranks if health.heartbeat_ns and (now_ns - health.heartbeat_ns) / _NS > STOPPED_S]
    if stopped:
        return min(stopped, key=lambda health: health.heartbeat_ns).rank
    return min(ranks, key=lambda health: health.finished).rank


def _stalled(watch: Watch, processes: Sequence[ProcessHealth], serving: bool) -> Violation | None:
    """The violation names the process that has got least far: serve or core when they have not begun, else a rank."""
    if serving or watch.checked_ns - watch.since_ns <= LOADING_S * _NS:
        return None
    unstarted = [health for health in processes if health.beats and not health.heartbeat_ns]
    ranks = [health for health in processes if health.rank >= 0]
    late = min(unstarted or ranks, key=lambda health: (health.phase, health.progress))
    slowest = late.name if late.rank < 0 else f"rank {late.rank}"
    text = f"no progress in loading for {LOADING_S:.0f} s: {slowest} has got least far"
    return Violation(FailureReason.LOAD_STALLED, late.rank, text)
