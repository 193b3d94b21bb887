"""A server for the length of a benchmark: `octavo run`, started by the command and drained by it."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from octavo import bundled
from octavo.errors import OctavoError, UsageError
from octavo.shared.model_uri import parse
from octavo.shared.parent import ending_with_us

BUNDLED = "bundled://smollm2-135m-instruct"
SERVING = re.compile(r"^Serving (\S+) at (https?://\S+)/v1\b")
# Of both commands, as vLLM's benchmarks sample: nothing is cut from the distribution.
SAMPLING = {"temperature": 1.0, "top_p": 1.0}
DRAIN_S = 75.0  # octavo run gives requests 60 s


class NotServed(OctavoError):
    """`octavo run` exited after printing the reason. code: its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"octavo run exited with code {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Server:
    """base_url: http://host:port. model: the name to ask for."""

    base_url: str
    model: str


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command's own arguments, and the arguments after `--`, for octavo run."""
    arguments = list(argv)
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def model_folder(model: str) -> Path:
    """Where the model's tokenizer is; the bundled one is converted at its first use. Raises UsageError."""
    uri = parse(model)
    try:
        if uri.scheme == "bundled":
            return bundled.ensure(uri.rest)
        folder = uri.path if uri.scheme in (None, "file") else Path(model)
        if not folder.is_dir():
            raise UsageError(f"--model {model}: no such folder on this machine")
    except (bundled.BundledError, OSError) as error:
        raise UsageError(f"--model {model}: {error}") from error
    return folder


@contextmanager
def served(model: str, flags: Sequence[str]) -> Iterator[Server]:
    """Until the end of the block. flags: further ones of `octavo run`. Raises NotServed."""
    command = [sys.executable, "-m", "octavo", "run", model, *flags, "--port=0"]
    # In a session of its own: Ctrl-C reaches the benchmark alone, which then ends the server.
    # A benchmark that is killed cannot; then it drains by itself.
    environment = {**os.environ, **ending_with_us(signal.SIGTERM)}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    try:
        yield _greeting(process)
    finally:
        _end(process)


def _greeting(process: "subprocess.Popen[str]") -> Server:
    assert process.stdout is not None
    for line in process.stdout:
        if found := SERVING.match(line):
            # What it prints from now on is of no interest, but must not fill the pipe.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return Server(found[2], found[1])
    raise NotServed(process.wait() or 1)


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(DRAIN_S)
    except subprocess.TimeoutExpired:
        print(f"octavo bench: octavo run did not drain within {DRAIN_S:.0f} s and was killed", file=sys.stderr)
    finally:
        process.kill()
        process.wait()
