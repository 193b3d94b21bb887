"""A rank is killed while it decodes: `python benchmarks/recovery.py 8b [--times N] [--out FILE] [-- FLAGS]`.

`octavo run FOLDER FLAGS` (say `--tensor 2`) with streams under way; kill -9 of one rank after the other. Seconds from
the kill until every other rank of that incarnation is gone, and until a new request has its first token; and whether
every stream ended, by an error or by its last token.
"""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import record
import served
from served import Server
from streams import Answer, Clients, Job

STREAMS, PROMPT = 16, 64
UNDER_WAY_S = 2.0
GIVEN_UP_S = 120.0
Json = dict[str, Any]  # Any: JSON


def kill(server: Server, turn: int, tokens: int) -> Json:
    streams = Load(server.port, tokens)
    time.sleep(UNDER_WAY_S)
    before = server.ranks()
    name, pid = sorted(before.items())[turn % len(before)]
    os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    gone_s = _until(lambda: not any(_alive(one) for one in before.values())) - begin
    served_s = _until(lambda: _first_token(server.port)) - begin
    left = [pid for pid in _on_gpus() if pid in before.values()]
    answers = streams.join()
    return {
        "killed": name, "gone_s": round(gone_s, 2), "served_again_s": round(served_s, 2), "left_on_gpus": len(left),
        "streams": len(answers), "ended": sum(bool(answer.error) or answer.complete for answer in answers),
    }  # fmt: skip


class Load:
    """Streams in the background."""

    def __init__(self, port: int, tokens: int) -> None:
        self._answers: list[Answer] = []
        jobs = [Job([1 + index] * PROMPT, tokens, 0.0, GIVEN_UP_S) for index in range(STREAMS)]
        self._thread = threading.Thread(target=lambda: self._answers.extend(Clients(port, 1).run(jobs)), daemon=True)
        self._thread.start()

    def join(self) -> list[Answer]:
        self._thread.join()
        return self._answers


def _until(condition: Callable[[], bool]) -> float:
    """The time at which it holds. Raises RuntimeError when it does not come to that."""
    end = time.monotonic() + GIVEN_UP_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {GIVEN_UP_S:g} s")
        time.sleep(0.02)
    return time.monotonic()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _first_token(port: int) -> bool:
    body = json.dumps({"model": "local", "prompt": [1, 2, 3], "max_tokens": 1})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _on_gpus() -> list[int]:
    """Pids of the processes that hold a part of a GPU."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True
        )
    except OSError:
        return []
    return [int(line) for line in said.stdout.split() if line.isdigit()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="?", help="of random weights")
    parser.add_argument("--model", type=Path, help="a folder to serve instead")
    parser.add_argument("--times", type=int, default=2, help="kills (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=1500, help="of each stream (default: %(default)s)")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--out", type=Path, help="JSON")
    own, flags = served.split(sys.argv[1:])
    args = parser.parse_args(own)
    if (args.shape is None) == (args.model is None):
        parser.error("give a SHAPE or --model")
    model = args.model or served.folder_of(args.shape, args.models)
    made_on = record.machine(["torch", "grpcio"]) | {"gpu": served.gpu()}
    with record.Found(args.out, made_on) as found, served.serving(model, flags) as server:
        print(f"ready after {server.until_ready():.1f} s", flush=True)
        for turn in range(args.times):
            result = {"model": args.shape or model.name, "flags": flags, **kill(server, turn, args.tokens)}
            print("  ".join(f"{name} {value}" for name, value in result.items()), flush=True)
            found.put(f"kill {turn}", result)
            server.until_ready()


if __name__ == "__main__":
    main()
