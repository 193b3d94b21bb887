"""Memory is compared before it is taken: with the container's limit, and with what the machine has."""

from pathlib import Path

import pytest

from octavo.worker.devices.host_memory import SPARE_BYTES, shortage

GIB = 1 << 30


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    return written(tmp_path / "meminfo", f"MemTotal: {99 << 20} kB\nMemAvailable:   {40 << 20} kB\n")


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def version_2(root: Path, limit: int, used: int, files: int = 0) -> Path:
    written(root / "memory.max", f"{limit}\n")
    written(root / "memory.current", f"{used}\n")
    written(root / "memory.stat", f"anon {used}\nfile {files}\ninactive_file {files // 2}\nactive_file {files // 2}\n")
    return root


def version_1(root: Path, limit: int, used: int, files: int = 0) -> Path:
    written(root / "memory/memory.limit_in_bytes", f"{limit}\n")
    written(root / "memory/memory.usage_in_bytes", f"{used}\n")
    written(root / "memory/memory.stat", f"inactive_file 7\ntotal_inactive_file {files}\ntotal_active_file 0\n")
    return root


@pytest.mark.parametrize("limited", [version_1, version_2])
def test_what_is_left_below_the_limit_counts_with_files_that_the_kernel_gives_back(limited, tmp_path, meminfo) -> None:
    root = limited(tmp_path / "cgroup", 16 * GIB, 15 * GIB, files=12 * GIB)
    assert shortage(13 * GIB - SPARE_BYTES, root, meminfo) == ""
    why = shortage(15 * GIB, root, meminfo)
    assert "of the memory limit of 16.0 GiB 13.0 GiB are left; raise it to 19 GiB or more" in why


def test_the_limit_that_is_named_is_enough(tmp_path: Path, meminfo: Path) -> None:
    assert "raise it to 19 GiB" in shortage(15 * GIB, version_2(tmp_path / "low", 16 * GIB, 3 * GIB), meminfo)
    assert shortage(15 * GIB, version_2(tmp_path / "high", 19 * GIB, 3 * GIB), meminfo) == ""


def test_the_machine_may_have_less_than_the_limit_allows(tmp_path: Path, meminfo: Path) -> None:
    for root in (version_2(tmp_path / "cgroup", 64 * GIB, GIB), tmp_path / "unlimited"):
        assert shortage(39 * GIB, root, meminfo) == ""
        assert "the machine has 40.0 GiB available; end what uses the rest" in shortage(40 * GIB, root, meminfo)


def test_what_says_nothing_refuses_nothing(tmp_path: Path) -> None:
    written(tmp_path / "memory.max", str(GIB))  # and not what is used
    assert shortage(1 << 50, tmp_path, tmp_path / "none") == ""
