"""Examples are what the shipped CRD admits and the operator understands; checked without either's own validator."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo.operator.api.v1alpha1 import parse

ROOT = Path(__file__).parents[2]
CRD = yaml.safe_load((ROOT / "charts/octavo/files/crds/inferenceservices.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
EXAMPLES = [
    pytest.param(document, id=f"{path.name}-{index}")
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    for index, document in enumerate(yaml.safe_load_all(path.read_text()))
]


def wrong(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Paths of the fields that an API server would refuse or drop; rules in CEL are tried on a real one."""
    kind = TYPES.get(schema.get("type", ""), object)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield path
    elif isinstance(value, dict):
        yield from (f"{path}.{name}" for name in schema.get("required", ()) if name not in value)
        for name, field in value.items():
            yield from wrong_field(name, field, schema, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from wrong(item, schema["items"], f"{path}[{index}]")
    elif not allowed(value, schema):
        yield path


def wrong_field(name: str, value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if path.startswith(".metadata."):
        return  # the API server's own
    if name in schema.get("properties", {}):
        yield from wrong(value, schema["properties"][name], path)
    elif "additionalProperties" in schema:
        yield from wrong(value, schema["additionalProperties"], path)
    else:
        yield path


def allowed(value: Any, schema: dict[str, Any]) -> bool:
    if isinstance(value, str):
        fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return fits and value in schema.get("enum", [value]) and bool(re.search(schema.get("pattern", ""), value))
    return isinstance(value, bool) or bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_one_that_the_shipped_crd_admits(example: dict[str, Any]) -> None:
    assert (example["apiVersion"], example["kind"]) == ("octavo.dev/v1alpha1", CRD["spec"]["names"]["kind"])
    assert list(wrong(example, SCHEMA, "")) == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_one_that_the_operator_understands(example: dict[str, Any]) -> None:
    service = parse(example)
    assert service.name == example["metadata"]["name"] and service.spec.model.uri == example["spec"]["model"]["uri"]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, ".spec.model"),
        ({"model": {"uri": "bundled://x"}, "replcas": 2}, ".spec.replcas"),
        ({"model": {"uri": "bundled://x"}, "replicas": "2"}, ".spec.replicas"),
        ({"model": {"uri": "bundled://x"}, "replicas": -1}, ".spec.replicas"),
        ({"model": {"uri": "bundled://x", "dtype": "int4"}}, ".spec.model.dtype"),
        ({"model": {"uri": "bundled://x", "servedName": "two words"}}, ".spec.model.servedName"),
    ],
)
def test_a_wrong_example_would_be_found(spec: dict[str, Any], path: str) -> None:
    assert list(wrong({"metadata": {"name": "x"}, "spec": spec}, SCHEMA, "")) == [path]
