"""When an incarnation has failed though every process exists: silence, a step that does not return, a load that stalls.

PURE: it judges what the board showed, by the rule of octavo.shared.liveness. A supervisor that was itself held up
judges nothing else, either, for as long as a process may be silent: the whole board is as old as its own absence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.shared.failure_reasons import FailureReason, stuck
from octavo.shared.liveness import WORKER, Presence

STOPPED_S = 3.0  # of a rank that is blamed for a late step
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
    """What was seen last. progress: the phases and percentages; since_s: when they last changed."""

    presence: Presence
    since_s: float
    progress: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def begun(now_ns: int) -> "Watch":
        """The watch over an incarnation that begins."""
        return Watch(Presence(now_ns / _NS), now_ns / _NS)


def check(
    watch: Watch, processes: Sequence[ProcessHealth], serving: bool, now_ns: int
) -> tuple[Watch, Violation | None]:
    """The watch after this check, and a violation if the incarnation must end."""
    now_s = now_ns / _NS
    presence = watch.presence.checked(now_s, WORKER)
    progress = tuple((health.phase, health.progress) for health in processes)
    since_s = now_s if progress != watch.progress or serving else watch.since_s
    after = Watch(presence, since_s, progress)
    if now_s - presence.since_s < WORKER.silence_s:
        return after, None
    return (
        after,
        _silent(presence, processes, now_s) or _overdue(processes, now_ns) or _stalled(after, processes, serving),
    )


def _silent(presence: Presence, processes: Sequence[ProcessHealth], now_s: float) -> Violation | None:
    for health in processes:
        beat_s = health.heartbeat_ns / _NS
        if health.beats and beat_s and presence.is_silent(beat_s, now_s, WORKER.silence_s):
            text = f"{health.name} was silent for {now_s - beat_s:.1f} s"
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
    if serving or watch.presence.checked_s - watch.since_s <= WORKER.starting_s:
        return None
    unstarted = [health for health in processes if health.beats and not health.heartbeat_ns]
    ranks = [health for health in processes if health.rank >= 0]
    late = min(unstarted or ranks, key=lambda health: (health.phase, health.progress))
    slowest = late.name if late.rank < 0 else f"rank {late.rank}"
    text = f"no progress in loading for {WORKER.starting_s:.0f} s: {slowest} has got least far"
    return Violation(FailureReason.LOAD_STALLED, late.rank, text)
