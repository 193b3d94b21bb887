"""One soak: start the service, note what it holds when idle, disturb it under load, look again, and end it."""

import asyncio
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from support.patience import PATIENCE_S
from support.processes.local import LocalRun, local_run
from support.soak.asks import Ask, Subject
from support.soak.bad_asks import bad_ask
from support.soak.checker import Rules, Violation, check, check_final
from support.soak.client import Client, Clock
from support.soak.configurations import Configuration
from support.soak.fault_plan import FaultKind, plan
from support.soak.faults import Fault, Faults
from support.soak.history import Entry
from support.soak.leaks import Sample, leaks, left_behind, unbalanced, usage
from support.soak.places import Places
from support.soak.process_table import ProcessTable
from support.soak.service import Service

FINAL, FINAL_AT_ONCE = 100, 8  # requests when all is over
SETTLE_S = 60.0  # for counters to come down and processes to be reaped; looked at again and again
PAUSE_S = 0.25  # of a client between two requests, on average
UNANSWERED_S = 2.0  # the same after one that no router answered
WARM = 60  # requests before the first look: caches and arenas are as large as they become


@dataclass(frozen=True, slots=True)
class Settings:
    """seconds: of load and faults. patient: for machines that others use (checker.Rules)."""

    configuration: Configuration
    seed: int
    seconds: float
    kinds: Sequence[FaultKind]
    weights: dict[str, int]
    clients: int
    pause_s: tuple[float, float] = (2.0, 15.0)
    patient: bool = False
    final: int = FINAL


@dataclass(slots=True)
class Outcome:
    """All that is known of a soak."""

    history: list[Entry] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    connections: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # leaks, and what does not come back
    samples: dict[str, Sample] = field(default_factory=dict)
    exit_code: int | None = None
    log: str = ""


def soak(settings: Settings, folder: Path, places: Places, subject: Subject, outcome: Outcome) -> None:
    """folder: the checkpoint's. outcome: filled with what is known, also when this is interrupted or fails; the service
    has ended then, whatever happened."""
    table = ProcessTable(places.tmpdir)
    environment = {"TMPDIR": str(places.tmpdir)}
    flags = ("--device", "cpu", "--log-level", "info", *settings.configuration.flags)
    try:
        with local_run(folder, *flags, forked=False, environment=environment) as run:
            service = Service(run.until_serving(), places.tmpdir, table, settings.configuration)
            try:
                asyncio.run(_Soak(settings, service, table, places, subject, outcome).run())
                _end(run, outcome)
            finally:
                outcome.log = run.text
        gone = [one for one in table.scan().values() if not one.ended]
        outcome.problems += left_behind(gone, places.files(), places.shared_files())
    finally:
        for process in table.scan().values():
            table.send(process, signal.SIGKILL)


def _end(run: LocalRun, outcome: Outcome) -> None:
    run.process.send_signal(signal.SIGINT)
    try:
        outcome.exit_code = run.end(PATIENCE_S)
    except Exception as error:  # of two kinds, by how it was started
        outcome.problems.append(f"it does not end at Ctrl-C: {error}")
    else:
        if outcome.exit_code:
            outcome.problems.append(f"its exit code after Ctrl-C is {outcome.exit_code}")


class _Soak:
    def __init__(
        self,
        settings: Settings,
        service: Service,
        table: ProcessTable,
        places: Places,
        subject: Subject,
        outcome: Outcome,
    ) -> None:
        self._settings, self._service, self._table, self._places = settings, service, table, places
        self._subject, self._outcome = subject, outcome
        self._clock = Clock()
        self._faults = Faults(table, service, self._clock, places)
        self._draw = random.Random(f"load-{settings.seed}")

    async def run(self) -> None:
        watch = asyncio.create_task(self._clock.watch())
        try:
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(self._service.url, connector=connector, timeout=timeout) as session:
                client = Client(session, self._clock, PATIENCE_S if self._settings.patient else 10.0)
                await self._run(client)
        finally:
            watch.cancel()
            outcome = self._outcome
            outcome.faults, outcome.connections = self._faults.made, dict(self._faults.connections)
            rules = Rules(self._settings.patient, self._faults.disturbed())
            outcome.violations += check(outcome.history, rules)

    async def _run(self, client: Client) -> None:
        outcome = self._outcome
        if not await self._service.healthy():
            raise RuntimeError("the service does not become healthy before any fault")
        await self._quiet(client, WARM)
        outcome.samples["idle"] = idle = await self._settled(None)
        await self._disturbed(client)
        healed = await self._service.healthy()
        if not healed:
            outcome.problems.append(f"{PATIENCE_S:.0f} s after the last fault not all groups and routers serve")
        await self._quiet(client, self._settings.final if healed else FINAL_AT_ONCE)
        outcome.samples["end"] = end = await self._settled(idle)
        outcome.problems += leaks(idle, end)
        if not self._faults.disturbed().router:
            outcome.problems += unbalanced(end.router)

    async def _disturbed(self, client: Client) -> None:
        over = asyncio.Event()
        settings = self._settings
        load = [asyncio.create_task(self._load(client, index, over)) for index in range(settings.clients)]
        planned = plan(settings.seed, settings.kinds, settings.pause_s)
        made = asyncio.create_task(self._faults.make(planned))
        await asyncio.sleep(settings.seconds)
        made.cancel()
        await asyncio.gather(made, return_exceptions=True)
        await self._faults.end()
        over.set()
        await asyncio.gather(*load)

    async def _load(self, client: Client, index: int, over: asyncio.Event) -> None:
        draw = random.Random(f"client-{self._settings.seed}-{index}")
        kinds, weights = zip(*self._settings.weights.items(), strict=True)
        while not over.is_set():
            kind = draw.choices(kinds, weights)[0]
            ask = bad_ask(draw) if kind == "bad" else self._subject.draw(draw, kind)
            entry = await client.send(ask)
            self._outcome.history.append(entry)
            # Without a router a connection is refused at once, and all would have asked before it is back.
            await asyncio.sleep(draw.expovariate(1 / (PAUSE_S if entry.received.status else UNANSWERED_S)))

    async def _quiet(self, client: Client, count: int) -> None:
        """Greedy requests that nothing disturbs: each must be answered, however slow a busy machine is."""
        gate = asyncio.Semaphore(FINAL_AT_ONCE)

        async def one(ask: Ask) -> Entry:
            async with gate:
                return await client.send(ask)

        asks = [self._subject.draw(self._draw, "greedy").within(PATIENCE_S) for _ in range(count)]
        entries = await asyncio.gather(*map(one, asks))
        self._outcome.history += entries
        self._outcome.violations += check_final(entries)

    async def _settled(self, idle: Sample | None) -> Sample:
        """What is held once nothing is left to come down, or after SETTLE_S."""
        end_s = self._clock.now_s() + SETTLE_S
        while True:
            await asyncio.sleep(2.0)
            sample = await asyncio.to_thread(self._sample)
            if not list(leaks(idle or sample, sample)) or self._clock.now_s() > end_s:
                return sample

    def _sample(self) -> Sample:
        processes = list(self._table.scan().values())
        return Sample(
            roles=usage(processes),
            zombies=sum(one.ended for one in processes),
            files=self._places.files(),
            shared_files=self._places.shared_files(),
            workers=self._service.workers(),
            router=self._service.router(),
        )
