"""How soon `octavo run` serves the bundled model: `python benchmarks/start.py [--runs N] [--out FILE]`.

    first    an empty cache: the model is converted, then served
    second   every later start

Seconds from the command to its "Serving ..." line, and to the end of the answer to one prompt.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

PROMPT = "What is the capital of France?"


def start(cache: str) -> dict[str, float]:
    """One run of the command, from its start to its end."""
    command = [sys.executable, "-m", "octavo", "run", "--port", "0", "--prompt", PROMPT]
    environment = os.environ | {"XDG_CACHE_HOME": cache, "PYTHONUNBUFFERED": "1"}
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    seen: dict[str, float] = {}
    asked = False
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Serving "):
            seen["serving_s"] = round(time.monotonic() - begun, 2)
        if asked and "Paris" in line:
            seen["answered_s"] = round(time.monotonic() - begun, 2)
            process.send_signal(signal.SIGINT)
            break
        asked = asked or line.startswith("> ")
    ended = time.monotonic()
    code = process.wait(60)
    assert code == 0 and len(seen) == 2, f"exit code {code}, seen {seen}"
    return seen | {"drained_s": round(time.monotonic() - ended, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="later starts; the median counts (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "start-cpu.json")
    arguments = parser.parse_args()
    made_on = record.machine(["torch"])
    with tempfile.TemporaryDirectory() as cache:
        first = start(cache)
        later = [start(cache) for _ in range(arguments.runs)]
    second = {key: statistics.median(run[key] for run in later) for key in first}
    for name, result in (("first", first), ("second", second)):
        print(f"{name:7} serving after {result['serving_s']:5.1f} s, answered after {result['answered_s']:5.1f} s, "
              f"drained in {result['drained_s']:4.1f} s")  # fmt: skip
    record.write(arguments.out, made_on, {"first": first, "second": second})


if __name__ == "__main__":
    main()
