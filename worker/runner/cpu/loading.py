"""The model of a rank on a CPU, from its files: at the start, and again when a rank that sleeps is woken.

A rank that sleeps has nothing of the model in memory. Files may change meanwhile: another digest is refused.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from octavo.kernels.backend import Backend
from octavo.worker.distributed.collective import Collective
from octavo.worker.errors import INVALID, ModelError
from octavo.worker.models.decoder import Decoder
from octavo.worker.models.folder.checkpoint import Checkpoint, inspect
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.models.weights import Weights
from octavo.worker.models.weights_digest import WeightsDigest


class ModelLoader:
    """digest: of the weights as they were loaded first."""

    def __init__(
        self, checkpoint: Checkpoint, dtype: torch.dtype, shard: Shard, backend: Backend, collective: Collective
    ) -> None:
        self._folder, self._outline = checkpoint.folder, checkpoint.outline
        self._checkpoint, self._dtype, self._shard = checkpoint, dtype, shard
        self._backend, self._collective = backend, collective

    def load(self, context_length: int, progress: Callable[[int], None]) -> Decoder:
        self._context_length = context_length
        model, self.digest = self._read(self._checkpoint, progress)
        return model

    def load_again(self) -> Decoder:
        """Raises ModelError when the files have changed since."""
        checkpoint = inspect(self._folder)
        if checkpoint.outline != self._outline:
            raise _changed(self._folder)
        model, digest = self._read(checkpoint, lambda percent: None)
        if digest.result() != self.digest.result():
            raise _changed(self._folder)
        return model

    def _read(self, checkpoint: Checkpoint, progress: Callable[[int], None]) -> tuple[Decoder, WeightsDigest]:
        weights = Weights(checkpoint, self._dtype, self._shard, hash_threads=torch.get_num_threads())
        model = Decoder(weights, self._backend, self._context_length, self._collective, progress)
        return model, weights.digest


def _changed(folder: Path) -> ModelError:
    return ModelError(
        INVALID, folder, "it is not the model that fell asleep: its files have changed; give changed files another URI"
    )
