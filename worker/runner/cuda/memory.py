"""How much of a device KV may take: what is left after the weights, a step's working memory and the graphs."""

import torch

from octavo.shared.failure_reasons import FailureReason
from octavo.worker.errors import ConfigError, Fault

# Left to the driver, to cuBLAS and to fragmentation; a step never asks for more than was measured.
_MARGIN_BYTES = 512 << 20
_SHARE = 0.95  # of the device's memory, all together

LARGE_GIB = 64
REQUESTS, FEW_REQUESTS = 512, 256


def default_requests(device: torch.device) -> int:
    """How many run at once: what a row costs, in KV and in state, a large device has without asking."""
    return requests_of(torch.cuda.get_device_properties(device).total_memory)


def requests_of(total_bytes: int) -> int:
    """The same for a device of so much memory."""
    return REQUESTS if total_bytes >= LARGE_GIB << 30 else FEW_REQUESTS


def check_weights(device: torch.device, weight_bytes: int) -> None:
    """Before they are loaded. Raises Fault that says how much is needed and how much there is."""
    free, total = torch.cuda.mem_get_info(device)
    if weight_bytes > free - _MARGIN_BYTES:
        raise _too_large(f"its weights take {_gib(weight_bytes)}", free, total)


def kv_budget(device: torch.device, asked: int | None, working_bytes: int) -> int:
    """Bytes for KV. working_bytes: what the largest step and the graphs need beyond what is allocated now.

    Raises Fault when nothing is left, ConfigError when less is left than asked.
    """
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    left = int(free - (1 - _SHARE) * total) - working_bytes - _MARGIN_BYTES
    if left <= 0:
        raise _too_large(f"beside its weights a step takes {_gib(working_bytes)}", free, total)
    if asked is not None and asked > left:
        raise ConfigError(
            f"kvCacheMemory (--kv-cache-memory): {_gib(asked)} are asked for and {_gib(left)} of the device's"
            f" {_gib(total)} are left beside the weights and {_gib(working_bytes)} for a step; ask for less, or lower"
            " maxBatchTokens"
        )
    return left if asked is None else asked


def _too_large(why: str, free: int, total: int) -> Fault:
    return Fault(
        FailureReason.OUT_OF_DEVICE_MEMORY,
        f"the model does not fit: {why}, and of the device's {_gib(total)} {_gib(free)} are free; use a larger device",
    )


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
