"""Every CUDA source compiles for Hopper, on a machine without a GPU too: by the nvcc on the PATH, else PyPI's.

Cold that takes minutes; later the user's cache has what has not changed.
"""

from pathlib import Path

import pytest

from octavo.kernels import build

SOURCES = [source for source in build.sources() if source.suffix == ".cu"]


def test_there_are_sources() -> None:
    assert SOURCES


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_source_compiles_for_hopper(source: Path, tmp_path: Path) -> None:
    built = build.build(source, tmp_path)
    assert b"sm_90a" in built.read_bytes()
