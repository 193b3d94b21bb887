"""Sleep and wake: `python benchmarks/sleep.py 1b 8b [--times N] [--keep-kv] [--out FILE] [-- FLAGS]`.

`octavo run FOLDER FLAGS` (say `--prepare-sleep`, or `--tensor 2`) on a GPU, put to sleep and woken over gRPC as `octavo
sleep` and `octavo wake` do. A request waits in the router during each sleep. Seconds of each turn:

    asleep       from the call to its answer: the memory is given back
    awake        from the call of the wake to its answer
    first token  from the call of the wake until the waiting client has its first token

and MiB that the driver counts for the ranks while they serve, and while they sleep. Every answer has to be the one that
the model gave before its first sleep. The first sleep makes the copy of the weights on the host, unless --prepare-sleep
has had it made.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import record
import served
from record import Found
from served import Server

from octavo.proto.v1 import group_pb2, group_pb2_grpc

SHAPES = ("1b", "8b")
WANTED_S = {"asleep": 0.5, "first token": 0.5}
PROMPT_TOKENS, NEW_TOKENS = 512, 32
SETTLED_S = 0.3  # the waiting request is in the router's queue by then
PREPARED, GRAPHS = r"prepared to sleep", r"\bcaptured (all )?\d* ?graphs\b"
PREPARED_S = GRAPHS_S = 60.0
Json = dict[str, Any]  # Any: JSON


class Client(threading.Thread):
    """One request: its text, and when its first token came (monotonic seconds)."""

    def __init__(self, port: int, prompt: list[int]) -> None:
        super().__init__(daemon=True)
        self._port, self._prompt = port, prompt
        self.text, self.first_s, self.error = "", 0.0, ""
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        body = {
            "model": "local", "prompt": self._prompt, "temperature": 0, "max_tokens": NEW_TOKENS, "ignore_eos": True,
            "stream": True,
        }  # fmt: skip
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            self.error = answer.read().decode()
            return
        for line in answer:
            if line.startswith(b"data: {"):
                self.first_s = self.first_s or time.monotonic()
                event = json.loads(line[6:])
                self.error = self.error or str(event.get("error", ""))
                self.text += "".join(choice["text"] for choice in event.get("choices", ()))
        connection.close()

    def answer(self) -> str:
        self.join(120)
        if self.error or not self.text:
            raise RuntimeError(f"no answer: {self.error or 'it has no token'}")
        return self.text


def turn(server: Server, stub: group_pb2_grpc.GroupSleepStub, prompt: list[int], expected: str, keep_kv: bool) -> Json:
    """One sleep, and one wake."""
    awake_mib = _ranks_mib(server)
    began = time.monotonic()
    slept = stub.Sleep(group_pb2.SleepRequest(keep_kv=keep_kv), timeout=120)
    asleep_s = time.monotonic() - began
    asleep_mib = _ranks_mib(server)
    client = Client(server.port, prompt)
    time.sleep(SETTLED_S)
    if client.first_s:
        raise RuntimeError("a group that sleeps has answered")
    began = time.monotonic()
    stub.Wake(group_pb2.WakeRequest(), timeout=120)
    awake_s = time.monotonic() - began
    text = client.answer()
    return {
        "asleep": round(asleep_s, 3), "awake": round(awake_s, 3), "first token": round(client.first_s - began, 3),
        "given_back_mib": slept.moved_bytes >> 20, "serving_mib": awake_mib, "sleeping_mib": asleep_mib,
        "same_tokens": text == expected,
    }  # fmt: skip


def _ranks_mib(server: Server) -> int | None:
    """Of the devices, together; None where the driver does not say."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
        used = {int(pid): int(mib) for pid, mib in (line.split(",") for line in lines)}
    except (OSError, ValueError):
        return None
    ranks = [pid for pid in server.ranks().values() if pid in used]
    if ranks:
        return sum(used[pid] for pid in ranks)
    return sum(used.values()) or _device_mib()  # in a container pids may be another namespace's


def _device_mib() -> int | None:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True).stdout.split()
    except OSError:
        return None
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    places = range(len(said)) if seen is None else [int(place) for place in seen.split(",") if place.isdigit()]
    return sum(int(said[place]) for place in places if place < len(said) and said[place].isdigit())


def measure(name: str, model: Path, flags: list[str], times: int, keep_kv: bool, found: Found) -> None:
    served.cache_pages(model)
    vocabulary = served.sizes(model).vocabulary
    prompt = [1 + 7 * n % (vocabulary - 1) for n in range(PROMPT_TOKENS)]
    with tempfile.TemporaryDirectory(prefix="octavo-sleep-") as folder:
        os.environ["TMPDIR"] = folder  # of the server: its sockets are found there
        with served.serving(model, flags) as server:
            server.until_ready()
            server.until_seen(GRAPHS, GRAPHS_S)
            if "--prepare-sleep" in flags:
                server.until_seen(PREPARED, PREPARED_S)
            expected = Client(server.port, prompt).answer()
            if keep_kv:  # then a prompt is read from the cache, which rounds otherwise than computing it whole
                expected = Client(server.port, prompt).answer()
            (socket,) = Path(folder).glob("octavo-run-*/0-0-status.sock")
            turns: list[Json] = []
            with grpc.insecure_channel(f"unix:{socket}") as channel:
                for _ in range(times):
                    stub = group_pb2_grpc.GroupSleepStub(channel)
                    turns.append(turn(server, stub, prompt, expected, keep_kv))
                    result = _result(name, flags, keep_kv, turns)
                    found.put(name, result)
    _tell(result)


def _result(name: str, flags: list[str], keep_kv: bool, turns: list[Json]) -> Json:
    later = turns[1:] or turns
    middle = {
        phase: round(statistics.median(one[phase] for one in later), 3) for phase in ("asleep", "awake", "first token")
    }
    return {
        "model": name, "flags": flags, "keep_kv": keep_kv, "wanted_s": WANTED_S, "first_asleep_s": turns[0]["asleep"],
        "median_of_later_s": middle, "wrong": sum(not one["same_tokens"] for one in turns), "turns": turns,
    }  # fmt: skip


def _tell(result: Json) -> None:
    middle, last = result["median_of_later_s"], result["turns"][-1]
    phases = "   ".join(
        f"{phase} {seconds:.3f}{' MISSED' if seconds > WANTED_S.get(phase, seconds) else ''}"
        for phase, seconds in middle.items()
    )
    print(
        f"{result['model']} {' '.join(result['flags'])}: first sleep {result['first_asleep_s']:.3f}   {phases}   "
        f"{last['given_back_mib']} MiB given back, {last['serving_mib']} -> {last['sleeping_mib']} MiB held; "
        f"{result['wrong']} of {len(result['turns'])} answers wrong",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of random weights: {', '.join(SHAPES)}")
    parser.add_argument("--model", type=Path, help="a folder to serve instead")
    parser.add_argument("--times", type=int, default=6, help="sleeps; the median of all but the first counts")
    parser.add_argument("--keep-kv", action="store_true", help="leave the KV cache on the device")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--out", type=Path, help="JSON")
    own, given = served.split(sys.argv[1:])
    arguments = parser.parse_args(own)
    if unknown := [shape for shape in arguments.shapes if shape not in SHAPES]:
        parser.error(f"{unknown[0]!r} is no shape; there are {', '.join(SHAPES)}")
    made_on = record.machine(["torch", "grpcio"]) | {"gpu": served.gpu()}
    models = {shape: served.folder_of(shape, arguments.models) for shape in arguments.shapes}
    if arguments.model is not None:
        models[arguments.model.name] = arguments.model
    if not models:
        parser.error("give a SHAPE or --model")
    with Found(arguments.out, made_on) as found:
        for name, model in models.items():
            measure(name, model, given, arguments.times, arguments.keep_kv, found)


if __name__ == "__main__":
    main()
