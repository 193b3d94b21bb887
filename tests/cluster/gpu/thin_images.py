"""Images for a node that is this very machine: our sources and an environment, a few MiB; all else is the host's.

An image with PyTorch and CUDA's libraries has gigabytes. These hold only `octavo` from the tree as it is. The node's
containers have the host's /usr and the environment of the Python that runs this, read-only, in the same places:
`runtime_spec` has these mounts, and containerd begins each container with it. The environment variables are the ones
that the Dockerfile gives the image of the same name, so that what runs here runs there.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MKIMAGE = ROOT / "tests" / "cluster" / "bed" / "image" / "mkimage.py"
PAUSE = ROOT / "tests" / "cluster" / "bed" / "image" / "pause.c"
COMPONENTS = ("operator", "router", "worker")
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr on today's systems
HOME = "opt/octavo"  # of our sources, and of packages that the host's Python lacks
USER = 10001  # as the Dockerfile has it


def environment(component: str) -> dict[str, str]:
    """The variables of the Dockerfile's image."""
    stages = _stages((ROOT / "Dockerfile").read_text())
    base, found = stages[component]
    inherited = (
        environment(base)
        if base in stages
        else {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    )
    for name, value in found:
        inherited[name] = _expand(value, inherited)
    return inherited


def _machines() -> dict[str, str]:
    """What this machine tells programs of its GPUs, such as NCCL_NVLS_ENABLE=0 where multicast must not be used."""
    return {name: value for name, value in os.environ.items() if name.startswith(("NCCL_", "NVSHMEM_", "TORCH_SYMM_"))}


def _stages(dockerfile: str) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """By name: what it is built on, and its ENV lines."""
    stages: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    lines: list[tuple[str, str]] = []
    for line in dockerfile.splitlines():
        if start := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            lines = []
            base = "base" if start[1] == "${WORKER_BASE}" else start[1]  # which is the same unless one says otherwise
            stages[start[2]] = (base, lines)
        elif line.startswith("ENV "):
            lines += [(name, value) for name, _, value in (word.partition("=") for word in shlex.split(line[4:]))]
    return stages


def _expand(value: str, known: dict[str, str]) -> str:
    """$NAME, and ${NAME:+words}, which is empty where NAME is."""
    value = re.sub(r"\$\{(\w+):\+([^}]*)\}", lambda found: found[2] if known.get(found[1]) else "", value)
    return re.sub(r"\$(\w+)", lambda found: known.get(found[1], ""), value)


def host_folders() -> list[str]:
    """What containers have of this machine: the system, and the Python that runs this with its packages."""
    folders = [
        "/usr",
        *(f"/{name}" for name in MERGED if Path("/", name).is_dir() and not Path("/", name).is_symlink()),
    ]
    for prefix in (sys.base_prefix, sys.prefix):
        if Path(prefix).is_relative_to("/tmp"):
            raise SystemExit(f"{prefix}: pods have a /tmp of their own, which hides this Python; use one elsewhere")
        if not any(Path(prefix).is_relative_to(folder) for folder in folders):
            folders.append(prefix)
    return folders


def runtime_spec() -> str:
    """containerd's own with the host's folders. What is mounted into them stays behind: a driver comes by a plugin."""
    spec = json.loads(subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True).stdout)
    options = ["bind", "ro", "nosuid", "nodev"]
    mounts = [{"destination": path, "source": path, "type": "bind", "options": options} for path in host_folders()]
    return json.dumps({**spec, "mounts": [*mounts, *spec["mounts"]]})


def build(folder: Path, dns: Path, packages: Sequence[Path] = ()) -> list[Path]:
    """Archives of localhost/{pause,coredns}:1 and localhost/octavo-COMPONENT:test, for `ctr images import`.

    dns: the program coredns. packages: folders of what this Python lacks, as `pip install --target` makes them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        _system(tar)
        tar.add(_package(folder / "package"), f"{HOME}/src/octavo", filter=_readable)
        for number, path in enumerate(packages):
            tar.add(path, f"{HOME}/site{number}", filter=_readable)
    paths = [f"/{HOME}/src", *(f"/{HOME}/site{number}" for number in range(len(packages)))]
    archives = [_pause(folder), _program(folder, "coredns", dns)]
    for component in COMPONENTS:
        variables = {**environment(component), **_machines(), "PYTHONPATH": ":".join(paths)}
        config = {"Env": [f"{name}={value}" for name, value in variables.items()], "User": f"{USER}:{USER}"}
        archives.append(_image(folder, f"localhost/octavo-{component}:test", config, layer))
    return archives


def _system(tar: tarfile.TarFile) -> None:
    """The links of the host's root, and the two programs that our pods start: octavo and python3."""
    for name in MERGED:
        if (link := Path("/", name)).is_symlink():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, str(link.readlink())
            tar.addfile(info)
    scripts = {
        "octavo": f"#!{sys.executable}\nimport sys\nfrom octavo.__main__ import main\nsys.exit(main())\n",
        "python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n',  # a link would make it forget its environment
    }
    for name, text in scripts.items():
        _add(tar, f"opt/venv/bin/{name}", text)


def _add(tar: tarfile.TarFile, name: str, text: str) -> None:
    data, info = text.encode(), tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    tar.addfile(info, io.BytesIO(data))


def _package(folder: Path) -> Path:
    """src/octavo with what its links stand for, as a wheel has it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "octavo", folder, ignore=shutil.ignore_patterns("__pycache__", "csrc"))
    return folder


def _readable(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """By the user of the pods, owned by root."""
    info.uid = info.gid = 0
    info.mode |= 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def _pause(folder: Path) -> Path:
    """What holds a pod's namespaces. containerd begins it without the runtime spec: it has nothing of the host."""
    program = folder / "pause"
    subprocess.run(["gcc", "-Os", "-static", "-s", "-o", program, PAUSE], check=True)
    return _program(folder, "pause", program)


def _program(folder: Path, name: str, program: Path) -> Path:
    """An image that holds one program, static."""
    layer = folder / f"{name}.layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(program, name, filter=_readable)
    return _image(folder, f"localhost/{name}:1", {"Entrypoint": [f"/{name}"]}, layer)


def _image(folder: Path, name: str, config: dict[str, Any], *layers: Path) -> Path:  # Any: JSON, an image's config
    archive = folder / f"{name.rpartition('/')[2].partition(':')[0]}.tar"
    command = [sys.executable, str(MKIMAGE), str(archive), name, json.dumps(config), *map(str, layers)]
    subprocess.run(command, check=True)
    return archive
