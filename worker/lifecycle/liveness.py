"""When a life is over although every process still exists: silence, a step that does not return, a load that stalls.

PURE: it judges what the board showed. A supervisor that was itself held up (a frozen container, a starved machine)
judges nobody for as long as a process may be silent, because then the board is as old as its own absence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.shared.failure_reasons import FailureReason, stuck

SILENCE_S = 5.0
LOADING_S = 120.0
STOPPED_S = 3.0
LATE_LOOK_S = 2.0  # between two looks; normally 0.25 s
_NS = 1e9


@dataclass(frozen=True, slots=True)
class Pulse:
    """One process as the board shows it. rank: -1 for serve and core. Times are monotonic ns; 0 is never. finished:
    its last step. beats: whether silence ends the life; a rank's only says which one is to blame."""

    name: str
    rank: int
    heartbeat_ns: int
    phase: int
    progress: int
    deadline_ns: int = 0
    finished: int = 0
    beats: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a life must end."""

    reason: FailureReason
    rank: int
    message: str


@dataclass(frozen=True, slots=True)
class Watch:
    """What was seen last. progress: the phases and percentages; since_ns: when they last changed."""

    look_ns: int
    since_ns: int
    progress: tuple[tuple[int, int], ...] = ()
    blind_until_ns: int = 0


def look(watch: Watch, pulses: Sequence[Pulse], serving: bool, now_ns: int) -> tuple[Watch, Verdict | None]:
    """The watch after this look, and a verdict if a life must end."""
    blind_until = watch.blind_until_ns
    if now_ns - watch.look_ns > LATE_LOOK_S * _NS:
        blind_until = int(now_ns + SILENCE_S * _NS)
    progress = tuple((pulse.phase, pulse.progress) for pulse in pulses)
    since = now_ns if progress != watch.progress or serving else watch.since_ns
    after = Watch(now_ns, since, progress, blind_until)
    if now_ns < blind_until:
        return after, None
    return after, _silent(pulses, now_ns) or _overdue(pulses, now_ns) or _stalled(after, pulses, serving)


def _silent(pulses: Sequence[Pulse], now_ns: int) -> Verdict | None:
    for pulse in pulses:
        silence_s = (now_ns - pulse.heartbeat_ns) / _NS
        if pulse.beats and pulse.heartbeat_ns and silence_s > SILENCE_S:
            text = f"{pulse.name} was silent for {silence_s:.1f} s"
            return Verdict(stuck(pulse.name), pulse.rank, text)
    return None


def _overdue(pulses: Sequence[Pulse], now_ns: int) -> Verdict | None:
    for pulse in pulses:
        if pulse.deadline_ns and now_ns > pulse.deadline_ns:
            late_s = (now_ns - pulse.deadline_ns) / _NS
            blamed = _blamed(pulses, now_ns)
            text = f"a step did not return from rank {blamed} within its limit ({late_s:.1f} s over it)"
            return Verdict(FailureReason.RANK_STUCK, blamed, text)
    return None


def _blamed(pulses: Sequence[Pulse], now_ns: int) -> int:
    """Those that wait for a stuck rank are as late as it: one that is stopped, else that with the fewest steps."""
    ranks = [pulse for pulse in pulses if pulse.rank >= 0]
    stopped = [pulse for pulse in ranks if pulse.heartbeat_ns and (now_ns - pulse.heartbeat_ns) / _NS > STOPPED_S]
    if stopped:
        return min(stopped, key=lambda pulse: pulse.heartbeat_ns).rank
    return min(ranks, key=lambda pulse: pulse.finished).rank


def _stalled(watch: Watch, pulses: Sequence[Pulse], serving: bool) -> Verdict | None:
    """It names who has got least far: serve or core when they have not begun, else a rank."""
    if serving or watch.look_ns - watch.since_ns <= LOADING_S * _NS:
        return None
    unborn = [pulse for pulse in pulses if pulse.beats and not pulse.heartbeat_ns]
    ranks = [pulse for pulse in pulses if pulse.rank >= 0]
    late = min(unborn or ranks, key=lambda pulse: (pulse.phase, pulse.progress))
    who = late.name if late.rank < 0 else f"rank {late.rank}"
    text = f"no progress in loading for {LOADING_S:.0f} s: {who} has got least far"
    return Verdict(FailureReason.LOAD_STALLED, late.rank, text)
