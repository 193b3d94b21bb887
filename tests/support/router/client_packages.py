"""An environment with other people's clients, pinned by hash: made once, kept in the user's cache, apart from ours.

Their servers and clients get an environment in which nothing leads off this machine.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import uv

CLIENTS = Path(__file__).parents[1] / "clients"
PINS = CLIENTS / "constraints.txt"
NOWHERE = "http://127.0.0.1:9"  # no process listens: what would leave the machine ends there
OFFLINE = {
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_TELEMETRY": "False",
    "OTEL_SDK_DISABLED": "true",
}


def python() -> Path:
    """The environment's interpreter, of this one's version."""
    folder = _cache() / _digest()
    folder.mkdir(parents=True, exist_ok=True)
    venv, ready = folder / "venv", folder / "ready"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs of the tests may want it at once
        if not ready.exists():
            _uv("venv", "--clear", "--python", sys.executable, str(venv))
            inside = ("--python", str(venv / "bin" / "python"))
            _uv("pip", "install", *inside, "--require-hashes", "--no-deps", "-r", str(PINS))
            ready.touch()
    return venv / "bin" / "python"


def environment() -> dict[str, str]:
    """For processes of that interpreter: what they compile is kept, and nothing leads away."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    return kept | OFFLINE


def _uv(*arguments: str) -> None:
    done = subprocess.run([uv.find_uv_bin(), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"uv {' '.join(arguments)}: {done.stderr}"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "octavo" / "clients"


def _digest() -> str:
    return hashlib.sha256(PINS.read_bytes() + f"{sys.base_prefix} {sys.version}".encode()).hexdigest()[:16]
