"""What the last stage sampled goes into the first one's token pool."""

import torch

from octavo.worker.distributed.links import Links
from octavo.worker.runner.pending_tokens import Awaited, checked


def take_in(links: Links, tokens: torch.Tensor, awaited: Awaited) -> None:
    """tokens: the pool, [slots, context]. Waits for the ids; raises ValueError when others come."""
    sampled = links.receive_sampled()
    ids = checked(awaited, sampled.number, sampled.ids)
    if ids:
        tokens[list(awaited.slots), list(awaited.places)] = torch.tensor(ids)
