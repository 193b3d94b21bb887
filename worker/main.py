"""`octavo worker`: reads the flags and becomes the supervisor of one pod (or, on one machine, of one group)."""

import argparse
import asyncio
import logging
import sys
from contextlib import suppress

from octavo.worker.config import Config, parse_bytes
from octavo.worker.devices import gpu
from octavo.worker.errors import ConfigError
from octavo.worker.supervisor.fork_server_client import start


def build_parser() -> argparse.ArgumentParser:
    """The flags; each is a field of Config."""
    parser = argparse.ArgumentParser(prog="octavo worker", description="Run one pod of a group: token ids in and out.")
    add = parser.add_argument
    add("--model", required=True, help="bundled://NAME, file:///path or a folder")
    add("--served-name", default="", help="the name clients ask for (default: the model's last path part)")
    add("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto")
    add("--context-length", type=int, metavar="TOKENS", help="default: the model's")
    add("--max-batch-tokens", type=int, metavar="TOKENS", help="tokens in a step (default: 8192/stages, on CPUs 512)")
    add("--max-requests", type=int, help="requests that run together (default: 512, 256 on GPUs < 64 GiB, on CPUs 64)")
    add(
        "--token-interval", type=float, metavar="SECONDS",
        help="between two tokens of a request while prompts of others are read (default: by what runs and what waits)",
    )  # fmt: skip
    add("--kv-cache-memory", metavar="QUANTITY", help="default: what a GPU has left, on CPUs a quarter of the limit")
    add("--no-prefix-caching", action="store_true", help="compute every prompt in full")
    add(
        "--prepare-sleep", action="store_true",
        help="keep a copy of the weights in the host's memory, so that a first sleep is as fast as later ones (GPUs)",
    )  # fmt: skip
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto, a GPU where there is one")
    add("--threads", type=int, help="of each rank on CPUs (default: the pod's CPUs, divided among its ranks)")
    add("--serve", required=True, metavar="ADDRESS", help="for routers: unix:/path or host:port")
    add("--group", required=True, metavar="ADDRESS", help="for the group's other pods")
    add("--status", required=True, metavar="ADDRESS", help="for the operator")
    add("--health", required=True, metavar="ADDRESS", help="plain HTTP: /livez, /readyz, /startupz")
    add("--metrics", required=True, metavar="ADDRESS", help="plain HTTP: /metrics")
    add("--tls-dir", metavar="DIR", help="ca.crt, tls.crt, tls.key; without it only this machine may connect")
    add("--service-uid", default="")
    add("--revision", default="")
    add("--pod-name", default="local")
    add("--tensor", type=int, default=1, metavar="RANKS", help="ranks that share every layer (default: 1)")
    add(
        "--pipeline", type=int, default=1, metavar="STAGES", help="stages that the layers are divided into (default: 1)"
    )
    add("--ranks-per-pod", type=int, default=0, metavar="RANKS", help="divides --tensor (default: --tensor)")
    add("--pod-index", type=int, default=0, metavar="INDEX", help="which of the group's pods this is; 0 leads")
    add("--peers", default="", metavar="ADDRESS,...", help="the --group address of every pod, as the others dial it")
    add("--grace-period", type=float, default=120.0, metavar="SECONDS", help="from SIGTERM to SIGKILL (default: 120)")
    add(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info", help="least level (default: info)"
    )
    return parser


def parse(argv: list[str]) -> Config:
    """Raises ConfigError naming the flag; exits with 2 on flags that do not exist."""
    values = vars(build_parser().parse_args(argv))
    memory = values.pop("kv_cache_memory")
    values["kv_cache_bytes"] = None if memory is None else parse_bytes("--kv-cache-memory", memory)
    values["prefix_caching"] = not values.pop("no_prefix_caching")
    values["peers"] = tuple(filter(None, values["peers"].split(",")))
    values["token_interval_s"] = values.pop("token_interval")
    values["grace_s"] = values.pop("grace_period")
    values["served_name"] = values["served_name"] or values["model"].rstrip("/").rpartition("/")[2]
    return Config(**values)


def main(argv: list[str]) -> int:
    """Run until drained: 0, or 1 when it failed meanwhile. Bad flags, or a GPU that is not there: 2."""
    fork_server = None
    try:
        config = parse(argv)
        with suppress(OSError):  # the first incarnation tries again, and its failure names the cause
            fork_server = start()
        gpu.check(config.device, config.layout.per_pod)
    except ConfigError as error:
        print(f"octavo worker: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(
        level=config.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s worker %(message)s"
    )
    from octavo.worker.supervisor.supervisor import Supervisor

    return asyncio.run(Supervisor(config, fork_server).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
