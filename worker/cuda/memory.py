"""How much of a device KV may take: what is left after the weights, a step's working memory and the graphs."""

import torch

# Left to the driver, to cuBLAS and to fragmentation; a step never asks for more than was measured.
_MARGIN_BYTES = 512 << 20
_SHARE = 0.95  # of the device's memory, all together


def kv_budget(device: torch.device, asked: int | None, working_bytes: int, weight_bytes: int) -> int:
    """Bytes for KV. working_bytes: what the largest step and the graphs need beyond what is allocated now.

    Raises ValueError that says how much is needed and how much there is.
    """
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    left = int(free - (1 - _SHARE) * total) - working_bytes - _MARGIN_BYTES
    if asked is not None and asked > left:
        raise ValueError(
            f"kv-cache-memory: {_gib(asked)} asked, {_gib(left)} left of the device's {_gib(total)} beside weights of"
            f" {_gib(weight_bytes)} and {_gib(working_bytes)} for a step; ask for less, or lower --max-batch-tokens"
        )
    if left <= 0:
        raise ValueError(
            f"the model does not fit: weights take {_gib(weight_bytes)}, a step {_gib(working_bytes)}; the device has"
            f" {_gib(total)}, of which {_gib(free)} are free now; use a larger device or more of them"
        )
    return left if asked is None else asked


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
