"""What the last stage sampled goes into the first one's token pool."""

import torch

from octavo.worker.distributed.links import Links
from octavo.worker.runner.pending_tokens import StepTokens, checked


def receive_tokens(links: Links, tokens: torch.Tensor, pending: StepTokens) -> None:
    """tokens: the pool, [slots, context]. Waits for the ids; raises ValueError when others come."""
    sampled = links.receive_sampled()
    ids = checked(pending, sampled.number, sampled.ids)
    if ids:
        tokens[list(pending.slots), list(pending.places)] = torch.tensor(ids)
