"""Kernels that were not built are missed before the device is touched."""

from pathlib import Path

import pytest

from octavo.kernels.cuda import library
from octavo.kernels.errors import MissingKernels


def test_a_source_in_any_folder_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, libraries = tmp_path / "csrc", tmp_path / "lib"
    for path in (sources / "upload.cu", sources / "gemm/matvec.cu", libraries / "upload.so"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(library, "SOURCES", sources)
    monkeypatch.setattr(library, "LIBRARIES", libraries)
    with pytest.raises(MissingKernels, match=r"matvec\.so: no such file; build the kernels: python -m octavo"):
        library.check_built()
    (libraries / "matvec.so").touch()
    library.check_built()
