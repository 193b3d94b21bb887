"""What a soak found: in figures for a file, and in lines for people."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from support.soak.fault_plan import Action
from support.soak.soak import Outcome, Settings

SHOWN = 10  # violations


def figures(settings: Settings, outcome: Outcome) -> dict[str, Any]:  # Any: JSON
    kept = [one for one in outcome.faults if one.kind.action is Action.STOP and one.outlived]
    return {
        "configuration": settings.configuration.name,
        "title": settings.configuration.title,
        "flags": " ".join(settings.configuration.flags),
        "seed": settings.seed,
        "seconds": settings.seconds,
        "clients": settings.clients,
        "requests": len(outcome.history),
        "kinds": _counted(entry.ask.kind for entry in outcome.history),
        "outcomes": _counted(entry.outcome for entry in outcome.history),
        "faults": _counted(str(fault.kind) for fault in outcome.faults),
        "stopped_and_not_replaced": _counted(str(fault.kind) for fault in kept),
        "connections": outcome.connections,
        "tracebacks": outcome.log.count("Traceback (most recent call last)"),
        "violations": _counted(str(one.broken) for one in outcome.violations),
        "examples": [str(one) for one in outcome.violations[:SHOWN]],
        "problems": outcome.problems,
        "exit_code": outcome.exit_code,
        "held": {name: sample.shown() for name, sample in outcome.samples.items()},
    }


def passed(outcome: Outcome) -> bool:
    return not outcome.violations and not outcome.problems and outcome.exit_code == 0


def lines(found: dict[str, Any]) -> Iterator[str]:
    names = ("requests", "kinds", "outcomes", "faults", "violations", "tracebacks", "exit_code")
    yield f"configuration {found['configuration']}, seed {found['seed']}"
    yield from (f"  {name}: {json.dumps(found[name])}" for name in names)
    yield from (f"  {role}: {held}" for role, held in found["held"].items())
    yield from (f"  VIOLATION {one}" for one in found["examples"])
    yield from (f"  PROBLEM {one}" for one in found["problems"])


def keep(folder: Path, outcome: Outcome) -> None:
    """Every request, every fault and what the service printed, to look into."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = (json.dumps(asdict(entry), default=_plain) for entry in outcome.history)
    (folder / "history.jsonl").write_text("".join(f"{entry}\n" for entry in entries))
    faults = (json.dumps(asdict(fault)) for fault in outcome.faults)
    (folder / "faults.jsonl").write_text("".join(f"{fault}\n" for fault in faults))
    (folder / "violations.txt").write_text("".join(f"{one}\n" for one in outcome.violations))
    (folder / "service.log").write_text(outcome.log)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value.decode(errors="replace")


def _counted(names: Any) -> dict[str, int]:
    return dict(Counter(names).most_common())
