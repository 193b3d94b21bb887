"""Every test and `make check`, three runs beside each other: `python tests/suites.py [PYTEST OPTION ...]`.

Tests on the bed mostly wait, so that others compute meanwhile; the cluster's and its nodes' share one. Three
runs keep two cores busy but for a tenth or a fifth; a fourth saves a minute where they are fast, and where they are
slow tests fail of nothing but the load. As one ends, the next begins. Each line of output names its run.

A few tests that failed are run once more when all runs have ended, each folder's alone on the machine that is quiet
then (docs/decisions/0014). Whatever passes only so is named at the end, between all failures and the closing lines.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
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
    "routers": tuple(f"processes/{name}" for name in ("bench", "group", "grpc", "router")),  # two halves of them,
    "workers": tuple(f"processes/{name}" for name in ("http", "run", "whole_path", "worker")),  # to run together
    "soak": ("soak",),
}
CHECK = "check"
AT_ONCE = 3
# What waits much comes first, beside what computes; the ends then meet.
ORDER = (CHECK, "nodes", "workers", "cluster", "others", "routers", "soak", "apiserver", "exactness")
MOST_AGAIN = 5  # causes: more than that at once are no chance
_CLOSING = re.compile(r"^(=+ )?\d+ \w+.* in [\d.]+s")
_ENDINGS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")
_TESTS_FAILED = 1  # pytest's exit code; others say that it was itself kept from running them


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run: exit code, closing line, the lines that name failures, and CPU seconds of it and of every process
    that it has waited for. slow: promises that were kept only by a calm clock (tests/support/patience.py)."""

    code: int
    closing: str
    failures: tuple[str, ...] = ()
    cpu_s: float = 0.0
    slow: int = 0

    @property
    def failed(self) -> dict[str, str]:
        """Why each test failed that did, by its name."""
        lines = [line.partition(" ")[2].partition(" - ") for line in self.failures]
        return {name: why for name, _, why in reversed(lines)}

    @property
    def causes(self) -> int:
        """How many: what tests of a file share may fail before they begin, and is one for all of them."""
        lines = [line.partition(" - ") for line in self.failures]
        failed = {place.partition(" ")[2] for place, _, _ in lines if place.startswith("FAILED ")}
        errors = [(place.partition(" ")[2], why) for place, _, why in lines if place.startswith("ERROR ")]
        return len(failed) + len({(test.partition("::")[0], why) for test, why in errors if test not in failed})


def run(name: str, options: list[str]) -> Result:
    """Passes its output on line by line."""
    if name == CHECK:
        return _pass_on(name, ["make", "--no-print-directory", "check"])
    cache = f"cache_dir=.pytest_cache/{name}"
    return _pass_on(name, [sys.executable, "-m", "pytest", *paths(name), "-o", cache, *options])


def paths(name: str) -> list[str]:
    """Folders and files of a run, from the root on."""
    found = (sorted((ROOT / "tests").glob(pattern)) for pattern in RUNS[name])
    return [str(path.relative_to(ROOT)) for some in found for path in some]


def run_again(name: str, options: list[str]) -> Result:
    """What failed in this run's folders, and nothing else."""
    return run(name, ["--last-failed", "--last-failed-no-failures=none", *options])


def _pass_on(name: str, command: list[str]) -> Result:
    closing, failures, slow = "", [], 0
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{name:10}| {line}", end="", flush=True)
            slow += "SlowMachine: " in line
            if _CLOSING.match(line):
                closing = line.strip("= \n")
            elif line.startswith(("FAILED ", "ERROR ")):
                failures.append(line.strip())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return Result(process.returncode, closing, tuple(failures), usage.ru_utime + usage.ru_stime, slow)


def worth_repeating(results: Mapping[str, Result]) -> list[str]:
    """Runs of which tests failed; none when so many did that chance is no excuse. A failed check is no test."""
    names = [name for name, result in results.items() if name != CHECK and result.code == _TESTS_FAILED]
    return names if sum(results[name].causes for name in names) <= MOST_AGAIN else []


def passed_alone(first: Result, again: Result) -> dict[str, str]:
    """Why each test had failed that did so only beside others."""
    if again.code not in (0, _TESTS_FAILED):
        return {}
    return {name: why for name, why in first.failed.items() if name not in again.failed}


def exit_code(results: Mapping[str, Result], again: Mapping[str, Result]) -> int:
    """The worst: a run that was repeated is as good as its repetition."""
    return max(abs((again.get(name) or result).code) for name, result in results.items())


def total(closings: Iterable[str]) -> str:
    """Of the endings that closing lines count: `1 failed, 20 passed`."""
    counts: Counter[str] = Counter()
    for closing in closings:
        for count, ending in re.findall(r"(\d+) (\w+)", closing.split(" in ")[0]):
            counts[ending if ending.endswith(("ed", "s")) else f"{ending}s"] += int(count)
    return ", ".join(f"{counts[ending]} {ending}" for ending in _ENDINGS if counts[ending])


def closing(result: Result) -> str:
    """What a run ended with, and what it took."""
    code = f" (exit code {result.code})" if result.code else ""
    slow = f", bounds kept by a calm clock only: {result.slow}" if result.slow else ""
    return f"{result.closing or 'done'}{code}, {result.cpu_s:.0f} s of CPU{slow}"


def main() -> None:
    begin, options = time.monotonic(), sys.argv[1:]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = dict(zip(ORDER, pool.map(lambda name: run(name, options), ORDER), strict=True))
    again = {name: run_again(name, options) for name in worth_repeating(results)}
    print()
    for name, result in results.items():
        for failure in again.get(name, result).failures:
            print(f"{name:10}| {failure}")
    alone = {name: passed_alone(results[name], result) for name, result in again.items()}
    for name, tests in alone.items():
        for test, why in tests.items():
            print(f"{name:10}| passed only when run alone: {test} - {why}")
    for name, result in results.items():
        print(f"{name:10}| {closing(result)}")
    for name, result in again.items():
        print(f"{name:10}| alone: {closing(result)}")
    seconds = time.monotonic() - begin
    cpu_s = sum(result.cpu_s for result in (*results.values(), *again.values()))
    print(
        f"{total(result.closing for result in results.values())} in {seconds:.2f}s"
        f" ({int(seconds) // 60}:{int(seconds) % 60:02}), {cpu_s:.0f} s of CPU"
    )
    code = exit_code(results, again)
    if again and not code:
        print(f"all have passed, {sum(map(len, alone.values()))} of them only when run alone")
    sys.exit(code)


if __name__ == "__main__":
    main()
