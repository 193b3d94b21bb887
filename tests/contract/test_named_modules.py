"""Modules under a contract of pyproject.toml exist: a renamed one must not fall out of its contract in silence."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def modules(contract: dict[str, list[str]]) -> list[str]:
    """Our modules that the contract names; a layer may name several, and is relative where there is a container."""
    above = "".join(f"{container}." for container in contract.get("containers", []))
    named = [f"{above}{name.strip()}" for layer in contract.get("layers", []) for name in layer.split("|")]
    named += [name for key in ("source_modules", "ancestors") for name in contract.get(key, [])]
    return named + [name for name in contract.get("forbidden_modules", []) if name.startswith("octavo")]


def exists(module: str) -> bool:
    path = ROOT / "src" / module.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract["name"])
def test_every_module_under_a_contract_exists(contract: dict[str, list[str]]) -> None:
    named = modules(contract)
    assert named and [name for name in named if not exists(name)] == []


def test_the_deciding_modules_of_each_component_are_under_contract() -> None:
    pure = next(modules(contract) for contract in CONTRACTS if contract["name"] == "decisions are pure")
    assert {name.split(".")[1] for name in pure} == {"operator", "router", "worker"}
    assert not exists("octavo.worker.no_such_module")
