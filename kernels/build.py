"""Compile csrc: `python -m octavo.kernels.build [NAME ...]`. FOLDER/NAME.cu and FOLDER/NAME.cpp become lib/NAME.so.

One library a source, with a plain C interface, free of the Python and the torch ABI: one binary serves them all.
CUDA sources are compiled by the nvcc on the PATH, else by the one in kernels/nvcc.txt, which is fetched from the
package index once. Results are kept in the user's cache by a hash of the source, its headers and the command.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"
LIBRARIES = HERE / "lib"
PINS = HERE / "nvcc.txt"

# sm_90a: wgmma and setmaxnreg exist only under the architecture's own name.
CUDA_FLAGS = ("-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "--threads=0", "-lineinfo")
HOST_FLAGS = ("-O3", "-std=c++17")
SHARED_FLAGS = ("-shared", "-fPIC")


class BuildError(RuntimeError):
    """A compiler is missing, or refused a source. Alone: this file runs before the package is there."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "octavo"


def nvcc() -> list[str]:
    """The command, with the folders that a compiler from wheels does not find by itself."""
    found = shutil.which("nvcc")
    if found is not None:
        return [found]
    root = cache() / "nvcc" / hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]
    home = root / "nvidia" / "cu13"
    if not (home / "bin" / "nvcc").exists():
        _fetch(root)
    return [str(home / "bin" / "nvcc"), f"-I{home / 'include'}", f"-I{home / 'include' / 'cccl'}", f"-L{home / 'lib'}"]


def _fetch(root: Path) -> None:
    partial = root.with_name(f"{root.name}.{os.getpid()}")
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if shutil.which("uv", path=str(Path(sys.executable).parent)):
        install = [str(Path(sys.executable).parent / "uv"), "pip", "install", "-q", "--python", sys.executable]
    print("fetching the CUDA compiler", file=sys.stderr)
    _run([*install, "--no-deps", "--require-hashes", "--target", str(partial), "-r", str(PINS)], "the CUDA compiler")
    try:
        partial.rename(root)
    except OSError:  # another build was first
        shutil.rmtree(partial)


def command(source: Path) -> list[str]:
    if source.suffix == ".cu":
        return [*nvcc(), *CUDA_FLAGS, "-shared", "-Xcompiler", "-fPIC"]
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise BuildError(f"{source.name}: there is no C++ compiler; install g++ (Debian: apt-get install g++)")
    return [compiler, *HOST_FLAGS, *SHARED_FLAGS]


def build(source: Path, libraries: Path = LIBRARIES) -> Path:
    """Compile one source unless the cache has it. Raises BuildError with what the compiler said."""
    compile_ = command(source)
    kept = cache() / "kernels" / f"{source.stem}-{_digest(source, compile_)}.so"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        _run([*compile_, "-o", str(partial), str(source)], source.name)
        partial.rename(kept)
    libraries.mkdir(exist_ok=True)
    built = libraries / f"{source.stem}.so"
    partial = libraries / f".{source.stem}.{os.getpid()}"
    shutil.copyfile(kept, partial)
    partial.rename(built)  # a process that has it loaded keeps the old one
    return built


def _digest(source: Path, compile_: Sequence[str]) -> str:
    headers = sorted(SOURCES.rglob("*.cuh" if source.suffix == ".cu" else "*.h"))
    parts = [source.read_bytes(), *(header.read_bytes() for header in headers)]
    flags = " ".join(part for part in compile_[1:] if not part.startswith(("-I", "-L")))
    version = subprocess.run([compile_[0], "--version"], capture_output=True, check=True).stdout
    return hashlib.sha256(b"\0".join([*parts, flags.encode(), version])).hexdigest()[:16]


def _run(arguments: list[str], what: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{what}: {Path(arguments[0]).name} failed\n{done.stdout}{done.stderr}")
    if done.stderr.strip():
        print(done.stderr.strip(), file=sys.stderr)


def sources(names: Sequence[str] = ()) -> list[Path]:
    """All, or the named ones. Raises BuildError for a name without a source."""
    found = {path.stem: path for path in sorted([*SOURCES.rglob("*.cu"), *SOURCES.rglob("*.cpp")])}
    for name in names:
        if name not in found:
            raise BuildError(f"{name}: there is no such source; there are {', '.join(found)}")
    return [found[name] for name in names or found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="sources without their suffix; default: all")
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for built in pool.map(build, sources(parser.parse_args().names)):
                print(built.relative_to(HERE))
    except BuildError as error:
        sys.exit(f"octavo.kernels.build: {error}")


if __name__ == "__main__":
    main()
