"""From the command to the first token: `python benchmarks/coldstart.py 1b 8b [--runs N] [--out FILE] [-- FLAGS]`.

`octavo run FOLDER` as a fresh process, the checkpoint in the system's memory, and one request over HTTP as soon as
/readyz says so. FLAGS are more of octavo run's. Seconds from the command to the end of each phase, the median of the
runs:

    processes    the group's processes are started
    imports      the rank has PyTorch and its device
    weights      are on the device
    warm         a largest step was measured, the KV cache is there
    ready        /readyz is 200
    first token  the first one of the first request has reached the client
    graphs       all CUDA graphs are captured; requests are served meanwhile

A phase that the log does not tell of stays empty.
"""

import argparse
import http.client
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import record
import served
from record import Found
from served import Server

WANTED = {"1b": 8.0, "8b": 15.0}  # seconds to the first token
SHAPES = tuple(WANTED)
PROMPT_TOKENS, NEW_TOKENS = 128, 4
GRAPHS_S = 30.0
PHASES = {  # lines of the worker's log
    "processes": r"\bstarted rank\b",
    "imports": r"\bdevice: ",
    "weights": r"\bloaded weights\b|\bweights: |group 0: warming",
    "warm": r"\bKV cache: |\bwarm\w*: ",
}
GRAPHS = r"\bcaptured (all )?\d* ?graphs\b|\bgraphs captured\b"
ORDER = (*PHASES, "ready", "first token", "graphs")
Run = dict[str, float]


def start(model: Path, flags: list[str]) -> Run:
    """One start, one answer, one end."""
    with served.serving(model, flags) as server:
        run: Run = {"ready": server.until_ready()}
        run["first token"] = _first_token(server, served.sizes(model).vocabulary)
        if (found := server.until_seen(GRAPHS, GRAPHS_S if _on_gpu(server) else 0.0)) is not None:
            run["graphs"] = found.after_s
        for phase, pattern in PHASES.items():
            if (line := server.seen(pattern)) is not None:
                run[phase] = line.after_s
    return {phase: round(run[phase], 2) for phase in ORDER if phase in run}


def _on_gpu(server: Server) -> bool:
    """As its log says; without such a line, whether there is one."""
    line = server.seen(PHASES["imports"])
    return bool(served.gpu()) if line is None else "cpu" not in line.text.lower()


def _first_token(server: Server, vocabulary: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    body = {
        "model": "local", "prompt": [1 + 7 * n % (vocabulary - 1) for n in range(PROMPT_TOKENS)], "temperature": 0,
        "max_tokens": NEW_TOKENS, "ignore_eos": True, "stream": True,
    }  # fmt: skip
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"no answer: {answer.read().decode()}")
    for line in answer:
        if line.startswith(b"data: {"):
            break
    seconds = time.monotonic() - server.started
    answer.read()
    connection.close()
    return seconds


def measure(name: str, model: Path, flags: list[str], runs: int, found: Found) -> None:
    served.cache_pages(model)
    all_runs: list[Run] = []
    try:
        for _ in range(runs):
            all_runs.append(start(model, flags))
            found.put(name, _result(name, all_runs))
    finally:
        if all_runs:
            _tell(_result(name, all_runs))


def _result(name: str, all_runs: list[Run]) -> dict[str, Any]:  # JSON
    middle = {phase: _median(all_runs, phase) for phase in ORDER if any(phase in run for run in all_runs)}
    return {"model": name, "wanted_s": WANTED.get(name), "median_s": middle, "runs_s": all_runs}


def _tell(result: dict[str, Any]) -> None:
    middle, wanted = result["median_s"], result["wanted_s"]
    verdict = "" if wanted is None else f"   (wanted {wanted:g}{'' if middle['first token'] <= wanted else ', MISSED'})"
    phases = "   ".join(f"{phase} {seconds:.2f}" for phase, seconds in middle.items())
    print(f"{result['model']}: {phases}{verdict}", flush=True)


def _median(runs: list[Run], phase: str) -> float:
    return round(statistics.median(run[phase] for run in runs if phase in run), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of random weights: {', '.join(SHAPES)}")
    parser.add_argument("--model", type=Path, help="a folder to start instead")
    parser.add_argument("--runs", type=int, default=3, help="the median counts (default: %(default)s)")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--out", type=Path, help="JSON")
    own, given = served.split(sys.argv[1:])
    arguments = parser.parse_args(own)
    made_on = record.machine(["torch"]) | {"gpu": served.gpu()}
    if unknown := [shape for shape in arguments.shapes if shape not in SHAPES]:
        parser.error(f"{unknown[0]!r} is no shape; there are {', '.join(SHAPES)}")
    models = {shape: served.folder_of(shape, arguments.models) for shape in arguments.shapes}
    if arguments.model is not None:
        models[arguments.model.name] = arguments.model
    if not models:
        parser.error("give a SHAPE or --model")
    with Found(arguments.out, made_on) as found:
        for name, model in models.items():
            measure(name, model, given, arguments.runs, found)


if __name__ == "__main__":
    main()
