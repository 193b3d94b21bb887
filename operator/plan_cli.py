"""`octavo plan -f service.yaml`: the objects, with reasons, that the operator would create on an empty cluster."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from octavo.operator.api.v1alpha1 import KIND, InferenceService, SpecError, parse
from octavo.operator.errors import OperatorError
from octavo.operator.groups import names
from octavo.operator.groups.options import Options, add_allow_lists
from octavo.operator.groups.snapshot import Object, Snapshot
from octavo.operator.planning.plan import Plan, plan

PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"


class Unreadable(OperatorError, ValueError):
    """The file holds no valid service; the message names the file, the document and the error."""


def main(argv: list[str]) -> int:
    """Print the plan. Returns 0, or 2 if the file cannot be read or a field is invalid."""
    arguments = _parser().parse_args(argv)
    defaults = Options()
    options = Options(
        worker_image=arguments.worker_image or defaults.worker_image,
        router_image=arguments.router_image or defaults.router_image,
        host_path_allow=tuple(arguments.allow_host_path),
        image_allow=tuple(arguments.allow_image),
    )
    try:
        services = list(_services(arguments.file))
    except Unreadable as error:
        print(f"octavo plan: {error}", file=sys.stderr)
        return 2
    for service in services:
        print(render(service, plan(service, Snapshot(), options, now=0.0)), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo plan",
        description="Print the objects that the operator would create on an empty cluster, and the reason of each.",
    )
    parser.add_argument("-f", "--file", required=True, help="YAML file of InferenceServices; - is standard input")
    parser.add_argument("--worker-image", help="the operator's default worker image")
    parser.add_argument("--router-image", help="the operator's router image")
    add_allow_lists(parser)
    return parser


def _services(file: str) -> Iterator[InferenceService]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        raise Unreadable(f"-f {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Unreadable(f"-f {file}: not YAML: {error}") from error
    mine = [
        (number, item)
        for number, item in enumerate(documents, 1)
        if isinstance(item, dict) and item.get("kind") == KIND
    ]
    if not mine:
        raise Unreadable(f"-f {file}: holds no {KIND}")
    for number, document in mine:
        try:
            yield parse(_with_uid(document))
        except SpecError as error:
            raise Unreadable(f"-f {file}, document {number}: {error}") from error


def _with_uid(document: Object) -> Object:
    """The document with a uid and a generation, which the API server would add."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return document
    return {**document, "metadata": {"uid": PLACEHOLDER_UID, "generation": 1, **metadata}}


def _without_time(item: Object) -> Object:
    """The object without the annotation that holds the time of a plan."""
    kept = {key: text for key, text in (item["metadata"].get("annotations") or {}).items() if key != names.KEYS_SINCE}
    metadata = {key: value for key, value in item["metadata"].items() if key != "annotations"}
    return {**item, "metadata": {**metadata, "annotations": kept} if kept else metadata}


def render(service: InferenceService, planned: Plan) -> str:
    """The plan as YAML documents, each with its reason as a comment."""
    parts = [f"# InferenceService {service.namespace}/{service.name}: {len(planned.apply)} objects\n"]
    if planned.certificates:
        for leaf in planned.certificates.leaves:
            signer = planned.certificates.ca_secret
            parts.append(f"# Secret {leaf.secret}: a certificate for {leaf.dns_name}, signed by {signer}\n")
    for item in planned.apply:
        title = f"# {item.object['kind']} {item.object['metadata']['name']}: {item.reason}\n"
        if item.object["kind"] == "ControllerRevision":  # a copy of a template that is printed anyway
            parts.append(title)
            continue
        parts.append(f"---\n{title}{yaml.safe_dump(dict(_without_time(item.object)), sort_keys=False, width=140)}")
    for condition in (planned.status or {}).get("conditions", ()):
        if condition["type"] == "Degraded" and condition["status"] == "True":
            parts.append(f"# {condition['reason']}: {condition['message']}\n")
    return "".join(parts)
