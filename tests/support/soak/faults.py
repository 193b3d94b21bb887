"""Makes planned faults, one after another, and keeps when each began and was over."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from support.patience import PATIENCE_S, Bound
from support.soak.checker import Disturbed, Window
from support.soak.client import Clock
from support.soak.connections import burst, half_open
from support.soak.fault_plan import PROCESSES, Action, FaultKind, PlannedFault
from support.soak.places import Places
from support.soak.process_table import Process, ProcessTable, Role
from support.soak.service import Service

_ROUTERS = (Role.ROUTER, Role.ROUTER_PROCESS)
_POLL_S = 0.1
_FILLED_S = 4.0
_HELPER_S = 3.0  # after a helper's death a request may still meet it


@dataclass(slots=True)
class Fault:
    """Times are seconds since the soak began. ended_s: when what it hit was there again; None: not yet. outlived: a
    stopped process was there to be continued, not yet replaced."""

    kind: FaultKind
    pid: int
    begun_s: float
    ended_s: float | None = None
    outlived: bool = False


class Faults:
    def __init__(self, table: ProcessTable, service: Service, clock: Clock, places: Places) -> None:
        self._table, self._service, self._clock, self._places = table, service, clock, places
        self.made: list[Fault] = []
        self.connections: Counter[str] = Counter()  # what came of the connections of bursts
        self._over = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    async def make(self, planned: Iterator[PlannedFault]) -> None:
        """Until it is cancelled, or the plan ends."""
        for one in planned:
            await asyncio.sleep(one.pause_s)
            begin = self._hit if one.kind.action in PROCESSES else self._strain
            task = asyncio.create_task(begin(one))
            self._under_way.add(task)

    async def end(self) -> None:
        """Undo what goes on, and wait for the routers. An error of this module comes out here."""
        self._over.set()
        await asyncio.gather(*self._under_way)

    def disturbed(self) -> Disturbed:
        """When connections may have been lost, and helpers were away."""
        now_s = self._clock.now_s()
        windows = [(one.kind.target, Window(one.begun_s, one.ended_s or now_s)) for one in self.made]
        return Disturbed(
            [window for target, window in windows if target in _ROUTERS],
            [window for target, window in windows if target == Role.HELPER],
        )

    async def _hit(self, planned: PlannedFault) -> None:
        """A process, if there is one of the role that is not hit already."""
        kind = planned.kind
        found = [one for one in self._table.scan().values() if one.role == kind.target]
        found = sorted((one for one in found if not one.ended and not one.stopped), key=lambda one: one.pid)
        if not found:
            return
        process = found[int(planned.pick * len(found))]
        going = self._ending_with(process)
        fault = self._note(kind, process.pid)
        if not self._table.send(process, signal.Signals[f"SIG{kind.action}"]):
            self.made.remove(fault)  # it had just ended
            return
        if kind.action is Action.STOP:
            fault.outlived = await self._continue(process, planned.stopped_s)
        if kind.target in _ROUTERS:
            await self._until_routed(going if kind.action is Action.KILL else [])
        elif kind.target == Role.HELPER:
            await asyncio.sleep(_HELPER_S)
        fault.ended_s = self._clock.now_s()

    async def _continue(self, process: Process, stopped_s: float) -> bool:
        """After so long, or when the faults are over; whether it was still there."""
        end_s = self._clock.now_s() + stopped_s
        while self._clock.now_s() < end_s and self._table.is_running(process) and not self._over.is_set():
            await asyncio.sleep(_POLL_S)
        return self._table.send(process, signal.SIGCONT)

    def _ending_with(self, process: Process) -> list[Process]:
        """What ends when this one is killed: itself, and of a router its processes, which may answer for a moment."""
        if process.role != Role.ROUTER:
            return [process]
        return [one for one in self._table.scan().values() if one.role in _ROUTERS]

    async def _until_routed(self, going: list[Process]) -> None:
        """The processes in `going` are gone, and a router answers. Routers may be hit again meanwhile; what never
        comes back is found at the end of the soak."""
        bound = Bound(PATIENCE_S)
        while not bound.over and (any(map(self._table.is_running, going)) or not await self._service.routed()):
            await asyncio.sleep(_POLL_S)

    async def _strain(self, planned: PlannedFault) -> None:
        kind = planned.kind
        if kind.action is Action.FILL and not self._places.private:
            return
        fault = self._note(kind, 0)
        port = int(urlsplit(self._service.url).port or 0)
        if kind.action is Action.BURST:
            self.connections += await burst(port)
        elif kind.action is Action.HALF_OPEN:
            self.connections += await half_open(port, self._over)
        else:
            await self._fill(self._places.path(kind.target) / "soak-filler")
        fault.ended_s = self._clock.now_s()

    async def _fill(self, path: Path) -> None:
        try:
            with path.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _FILLED_S)
        finally:
            path.unlink(missing_ok=True)

    def _note(self, kind: FaultKind, pid: int) -> Fault:
        fault = Fault(kind, pid, self._clock.now_s())
        self.made.append(fault)
        print(f"{fault.begun_s:7.1f} s  {kind} {pid or ''}", flush=True)
        return fault
