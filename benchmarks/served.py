"""`octavo run` as a user starts it, for the benchmarks of the whole path: a process, its log with times, its end."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MODELS = Path.home() / ".cache/octavo/bench"
READY_TIMEOUT_S = 300.0
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Line:
    """after_s: since the command was given."""

    after_s: float
    text: str


class Server:
    """One `octavo run`. Its standard output and error are read as they come."""

    def __init__(self, model: Path, flags: Sequence[str]) -> None:
        self.port = _free_port()
        command = [sys.executable, "-m", "octavo", "run", str(model), "--port", str(self.port), "--log-level", "info"]
        self.lines: list[Line] = []
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [*command, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until_ready(self) -> float:
        """Seconds from the command to /readyz. Raises RuntimeError with the log when it ends first."""
        end = self.started + READY_TIMEOUT_S
        while time.monotonic() < end:
            if _ready(self.port):
                return time.monotonic() - self.started
            if self._process.poll() is not None:
                break
            time.sleep(POLL_S)
        raise RuntimeError(f"octavo run does not serve:\n{self.text}")

    def seen(self, pattern: str) -> Line | None:
        """The first line that the pattern is found in."""
        return next((line for line in list(self.lines) if re.search(pattern, line.text, re.IGNORECASE)), None)

    def until_seen(self, pattern: str, timeout_s: float) -> Line | None:
        end = time.monotonic() + timeout_s
        while (found := self.seen(pattern)) is None and time.monotonic() < end and self._process.poll() is None:
            time.sleep(0.05)
        return found

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)

    def ranks(self) -> dict[str, int]:
        """Pids of its ranks by their names, as the process table has them."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:  # gone meanwhile
                continue
            if name.startswith("octavo.worker.rank ") and self._process.pid in _ancestors(int(folder.name)):
                found[name] = int(folder.name)
        return found

    @property
    def text(self) -> str:
        return "".join(line.text for line in self.lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self.lines.append(Line(time.monotonic() - self.started, text))


@contextmanager
def serving(model: Path, flags: Sequence[str]) -> Iterator[Server]:
    server = Server(model, flags)
    try:
        yield server
    finally:
        server.stop()


def folder_of(shape: str, models: Path = MODELS) -> Path:
    """The random checkpoint of a shape, written by a process of its own: this one must not hold a GPU."""
    code = "import sys, pathlib, shapes; print(shapes.checkpoint(sys.argv[1], pathlib.Path(sys.argv[2])))"
    done = subprocess.run([sys.executable, "-c", code, shape, str(models)], cwd=HERE, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{shape}: the checkpoint cannot be written")
    return Path(done.stdout.splitlines()[-1])


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(what is ours, what follows a `--`: more flags of octavo run)."""
    at = list(argv).index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at + 1 :])


@dataclass(frozen=True, slots=True)
class Sizes:
    """context: tokens."""

    vocabulary: int
    context: int


def sizes(model: Path) -> Sizes:
    config = json.loads((model / "config.json").read_text())
    return Sizes(int(config["vocab_size"]), int(config["max_position_embeddings"]))


def cache_pages(model: Path) -> None:
    """Read every file once, so that the system has it in memory."""
    for file in model.iterdir():
        if file.is_file():
            with file.open("rb") as opened:
                while opened.read(16 << 20):
                    pass


def gpu() -> str:
    """The name of the first GPU, asked without taking a part of it; empty when there is none."""
    try:
        names = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return next(iter(names.stdout.splitlines()), "")


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return
        yield pid


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
