"""`octavo bench`: how fast a server answers, with vLLM's options, definitions and printed blocks.

octavo bench serve         load on any OpenAI-compatible server: TTFT, TPOT, ITL, E2EL, throughput, goodput
octavo bench throughput    many prompts at once to a server that the command starts: requests/s and tokens/s
octavo bench latency       one batch, again and again, to a server that the command starts: seconds a batch
"""

import sys
from importlib import import_module

COMMANDS = ("serve", "throughput", "latency")
PACKAGES = ("aiohttp", "tokenizers", "tqdm", "matplotlib")  # of the extra `bench`


def main(argv: list[str]) -> int:
    """0 when measured, 1 when every request failed, 2 for wrong usage, 130 when interrupted."""
    if not argv or argv[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        return 0 if argv else 2
    name = argv[0]
    if name not in COMMANDS:
        print(f"octavo bench: unknown command {name!r}; one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        code: int = import_module(f"octavo.bench.{name}").main(argv[1:])
    except KeyboardInterrupt:
        print(f"octavo bench {name}: interrupted", file=sys.stderr)
        return 130
    except ModuleNotFoundError as missing:
        if missing.name not in PACKAGES:
            raise
        print(
            f"octavo bench {name}: the Python package {missing.name!r} is missing; install octavo[bench]",
            file=sys.stderr,
        )
        return 1
    return code
