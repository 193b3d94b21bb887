"""Every test, in three runs of pytest beside each other: `python tests/suites.py [PYTEST OPTION ...]`.

Tests of the cluster and of the API server mostly wait, so that the others compute meanwhile; those of processes mind
company, and have it only of those. Each line of output names its run; at the end stand the closing lines of all, and
their sum. Exits as the worst of them.
"""

import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = {
    "cluster": ("cluster",),
    "apiserver": ("apiserver",),
    "others": ("unit", "kernels", "contract", "gpu", "exactness", "processes"),
}
_CLOSING = re.compile(r"^(=+ )?\d+ \w+.* in [\d.]+s")
_ENDINGS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")


def run(name: str, options: list[str]) -> tuple[int, str]:
    """Exit code and closing line of one run; its output is passed on line by line."""
    paths = [f"tests/{folder}" for folder in RUNS[name]]
    command = [sys.executable, "-m", "pytest", *paths, "-o", f"cache_dir=.pytest_cache/{name}", *options]
    closing = "no closing line"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{name:10}| {line}", end="", flush=True)
            if _CLOSING.match(line):
                closing = line.strip("= \n")
    return process.returncode, closing


def total(closings: list[str]) -> str:
    """Of the endings that closing lines count: `1 failed, 20 passed`."""
    counts: Counter[str] = Counter()
    for closing in closings:
        for count, ending in re.findall(r"(\d+) (\w+)", closing.split(" in ")[0]):
            counts[ending if ending.endswith(("ed", "s")) else f"{ending}s"] += int(count)
    return ", ".join(f"{counts[ending]} {ending}" for ending in _ENDINGS if counts[ending])


def main() -> None:
    begin = time.monotonic()
    with ThreadPoolExecutor(len(RUNS)) as pool:
        results = list(pool.map(lambda name: run(name, sys.argv[1:]), RUNS))
    print()
    for name, (code, closing) in zip(RUNS, results, strict=True):
        print(f"{name:10}| {closing}{f' (exit code {code})' if code else ''}")
    seconds = time.monotonic() - begin
    print(
        f"{total([closing for _, closing in results])} in {seconds:.2f}s ({int(seconds) // 60}:{int(seconds) % 60:02})"
    )
    sys.exit(max(code for code, _ in results))


if __name__ == "__main__":
    main()
