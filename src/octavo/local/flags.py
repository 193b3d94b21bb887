"""The command line of `octavo run`: a resource's spec, from a file, from flags, or both (flags win).

Each field of the spec that applies to one machine has a flag in kebab case. The resource is validated by the operator's
code, so that an error names the same field.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import UsageError
from octavo.local.spec_flags import add_spec_flags, given_for, put_given
from octavo.operator.api.accelerators import DEVICES, GPU
from octavo.operator.api.v1alpha1 import API_VERSION, KIND, InferenceService, SpecError, parse
from octavo.router.frontend.key_file import parse_keys
from octavo.shared import model_uri
from octavo.worker.devices import gpu

BUNDLED = "bundled://smollm2-135m-instruct"
Json = dict[str, Any]  # Any: a resource as JSON


@dataclass(frozen=True, slots=True)
class Settings:
    """The service and the settings of this machine. log_level: of the routers and the workers.

    grpc_port: None: no gRPC API. A port of 0 takes a free one. api_key: a valid key, or None if clients need none.
    keys_file: the file with the keys, for the routers; None with an api_key: the file is still to be written.
    """

    service: InferenceService
    host: str
    port: int
    grpc_port: int | None
    device: str
    prompt: str | None
    drain_timeout_s: float
    log_level: str
    api_key: str | None = None
    keys_file: Path | None = None


def parse_args(argv: list[str]) -> Settings:
    """Raises UsageError; exits with 2 on flags that do not exist."""
    parser = _parser()
    args = vars(parser.parse_args(argv))
    resource = _read(args["file"]) if args["file"] else _empty()
    spec: Json = resource.setdefault("spec", {})
    if args["model"] is not None or not args["file"]:
        spec.setdefault("model", {})["uri"] = _uri(args["model"] or BUNDLED)
    put_given(spec, args)
    device = _device(args["device"], spec)
    if args["grpc_port"] and args["grpc_port"] == args["port"]:
        raise UsageError(f"--grpc-port: {args['port']} is --port's")
    try:
        service = parse(resource)
    except SpecError as error:
        given = given_for(error.field, args)
        named = f" ({', '.join(given)})" if given else ""
        raise UsageError(f"{error.field}{named}: {error.message}") from error
    if service.spec.paused or service.spec.replicas == 0:
        raise UsageError("spec.paused or spec.replicas: 0 leaves no group to run; set replicas to at least 1")
    if service.spec.router.api_keys is not None and args["api_key"] is None and args["api_keys_file"] is None:
        raise UsageError("spec.router.apiKeys: there are no Secrets on one machine; give --api-keys-file or --api-key")
    return Settings(
        service,
        args["host"],
        args["port"],
        args["grpc_port"],
        device,
        args["prompt"],
        args["drain_timeout"],
        args["log_level"],
        api_key=_key(args),
        keys_file=args["api_keys_file"],
    )


def _key(args: Json) -> str | None:
    """The API key for `octavo run`'s own requests; None if there are no keys. Raises UsageError."""
    file: Path | None = args["api_keys_file"]
    flag = "--api-key" if file is None else f"--api-keys-file {file}"
    if file is None and args["api_key"] is None:
        return None
    try:
        content = parse_keys(args["api_key"].encode() if file is None else file.read_bytes())
    except OSError as error:
        raise UsageError(f"{flag}: {error}") from error
    if content.problem is not None:
        raise UsageError(f"{flag}: {content.message}")
    return content.keys[0]


def _device(flag: str | None, spec: Json) -> str:
    """The flag's device, else the file's, else auto. Sets spec.accelerator.resource, which the rules depend on."""
    accelerator = spec.setdefault("accelerator", {}) if isinstance(spec, dict) else None
    if not isinstance(accelerator, dict):
        return "auto"  # `parse` reports the error
    named = accelerator.get("resource")
    if flag is None and named is not None:
        return DEVICES[named].device if isinstance(named, str) and named in DEVICES else "auto"
    device = flag or "auto"
    accelerator["resource"] = GPU if device == "cuda" or (device == "auto" and gpu.likely()) else "cpu"
    return device


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo run", description="Serve a model on this machine: the same router and workers as in a cluster."
    )
    parser.add_argument("model", nargs="?", help=f"folder or uri of the model (default: {BUNDLED})")
    parser.add_argument("-f", "--file", type=Path, help="an InferenceService in YAML")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8000, help="port of the HTTP API (default: %(default)s)")
    parser.add_argument("--grpc-port", type=_port, help="port of the gRPC API (default: none)")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), help="default: the file's; auto, a GPU where there is one"
    )
    parser.add_argument("--prompt", help="ask this once when the model serves, and print the answer")
    parser.add_argument("--drain-timeout", type=float, default=60.0, metavar="S", help="seconds to finish on Ctrl-C")
    levels = ("debug", "info", "warning", "error")
    parser.add_argument("--log-level", choices=levels, default="warning", help="default: %(default)s")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--api-key", metavar="KEY", help="clients need this key (other users may see it in `ps`)")
    keys.add_argument("--api-keys-file", type=Path, metavar="FILE", help="clients need a key of this file, one a line")
    add_spec_flags(parser)
    return parser


def _port(text: str) -> int:
    port = int(text) if text.isdigit() else -1
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535; 0 takes a free one)")
    return port


def _empty() -> Json:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "local"}, "spec": {}}


def _read(path: Path) -> Json:
    import yaml  # only here: most starts have no file

    try:
        documents = [d for d in yaml.safe_load_all(path.read_text()) if d is not None]
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--file {path}: {error}") from error
    services = [d for d in documents if isinstance(d, Mapping) and d.get("kind") == KIND]
    if len(services) != 1:
        raise UsageError(f"--file {path}: expected one {KIND}, found {len(services)}")
    return dict(services[0])


def _uri(model: str) -> str:
    uri = model_uri.parse(model)
    if uri.scheme is not None:
        return model
    try:
        folder = uri.path.resolve()
        if not folder.is_dir():
            raise UsageError(f"model: {folder} is not a folder, and {model!r} is not a uri such as {BUNDLED}")
    except OSError as error:
        raise UsageError(f"model: {model}: {error.strerror}") from error
    return folder.as_uri()
