"""Every test and `make check`, three runs beside each other: `python tests/suites.py [PYTEST OPTION ...]`.

Tests on the bed mostly wait, so that others compute meanwhile; the cluster's two lanes share it. Three runs keep two
cores busy to the end: with more of them every bound of seconds is a matter of luck. Each line of output names its run;
at the end stand all failures, the closing lines, and their sum. Exits as the worst of them.
"""

import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = {
    "cluster": ("cluster",),
    "nodes": ("nodes",),
    "apiserver": ("apiserver",),
    "exactness": ("exactness",),
    "others": ("unit", "kernels", "contract", "gpu"),
    "processes": ("processes",),
}
CHECK = "check"
LANES = (("cluster", "exactness"), (CHECK, "apiserver", "nodes"), ("others", "processes"))  # each one after the other
_CLOSING = re.compile(r"^(=+ )?\d+ \w+.* in [\d.]+s")
_ENDINGS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run: exit code, closing line, and the lines that name failures."""

    code: int
    closing: str
    failures: tuple[str, ...]


def run(name: str, options: list[str]) -> Result:
    """Passes its output on line by line."""
    if name == CHECK:
        return _pass_on(name, ["make", "--no-print-directory", "check"])
    paths = [f"tests/{folder}" for folder in RUNS[name]]
    return _pass_on(name, [sys.executable, "-m", "pytest", *paths, "-o", f"cache_dir=.pytest_cache/{name}", *options])


def _pass_on(name: str, command: list[str]) -> Result:
    closing, failures = "", []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{name:10}| {line}", end="", flush=True)
            if _CLOSING.match(line):
                closing = line.strip("= \n")
            elif line.startswith(("FAILED ", "ERROR ")):
                failures.append(line.strip())
    return Result(process.returncode, closing, tuple(failures))


def total(closings: list[str]) -> str:
    """Of the endings that closing lines count: `1 failed, 20 passed`."""
    counts: Counter[str] = Counter()
    for closing in closings:
        for count, ending in re.findall(r"(\d+) (\w+)", closing.split(" in ")[0]):
            counts[ending if ending.endswith(("ed", "s")) else f"{ending}s"] += int(count)
    return ", ".join(f"{counts[ending]} {ending}" for ending in _ENDINGS if counts[ending])


def main() -> None:
    begin = time.monotonic()
    with ThreadPoolExecutor(len(LANES)) as pool:
        lanes = pool.map(lambda lane: {name: run(name, sys.argv[1:]) for name in lane}, LANES)
        results = {name: result for lane in lanes for name, result in lane.items()}
    print()
    for name, result in results.items():
        for failure in result.failures:
            print(f"{name:10}| {failure}")
    for name, result in results.items():
        print(f"{name:10}| {result.closing or 'done'}{f' (exit code {result.code})' if result.code else ''}")
    seconds = time.monotonic() - begin
    print(
        f"{total([result.closing for result in results.values()])} in {seconds:.2f}s"
        f" ({int(seconds) // 60}:{int(seconds) % 60:02})"
    )
    sys.exit(max(result.code for result in results.values()))


if __name__ == "__main__":
    main()
