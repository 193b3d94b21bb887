"""Every CUDA source compiles for Hopper, on a machine without a GPU too: by the nvcc on the PATH, else PyPI's.

Cold that takes minutes; later the user's cache has what has not changed.
"""

import sys
from pathlib import Path

import pytest

from octavo.kernels import build

SOURCES = [source for source in build.sources() if source.suffix == ".cu"]


def test_each_source_has_a_library_of_its_own() -> None:
    files = [path for path in build.SOURCES.rglob("*") if path.suffix in (".cu", ".cpp")]
    assert SOURCES and len(build.sources()) == len(files)


def test_a_header_in_any_folder_is_part_of_the_cache_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    (tmp_path / "gemm").mkdir()
    (tmp_path / "common").mkdir()
    source, header = tmp_path / "gemm" / "gemm.cu", tmp_path / "common" / "common.cuh"
    source.write_text('#include "../common/common.cuh"')
    header.write_text("// one")
    compiler = [sys.executable, "-O3"]
    before = build._digest(source, compiler)
    assert build._digest(source, compiler) == before
    header.write_text("// another")
    assert build._digest(source, compiler) != before


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_source_compiles_for_hopper(source: Path, tmp_path: Path) -> None:
    built = build.build(source, tmp_path)
    assert b"sm_90a" in built.read_bytes()
