"""What is wrong with the tensors of a checkpoint, against the table of its config. No torch."""

from collections.abc import Mapping
from pathlib import Path

from octavo.worker.errors import INVALID, ModelError
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.tensor_specs import HEAD
from octavo.worker.models.folder.safetensors_header import Tensor

_FLOATS = ("F32", "BF16", "F16", "F64")


def check_tensors(weights: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raises ModelError that names a tensor which is missing, too many, or of the wrong shape or type.

    weights: the file that lists the tensors.
    """
    expected = config.tensors()
    if missing := [name for name in expected if name not in tensors]:
        raise ModelError(INVALID, weights, f"the weights lack {_some(missing)}, which config.json calls for")
    for name, spec in expected.items():
        tensor, shape = tensors[name], spec.shape
        if tensor.shape != shape:
            text = f"tensor {name!r} has shape {list(tensor.shape)} and config.json says {list(shape)}"
            raise ModelError(INVALID, tensor.file, text)
        if tensor.dtype not in _FLOATS:
            raise ModelError(
                INVALID, tensor.file, f"tensor {name!r} is {tensor.dtype}, not one of {', '.join(_FLOATS)}"
            )
    if strange := [name for name in tensors if name not in expected and not _ignored(name, config)]:
        text = f"a {config.architecture} of this config.json has no {_some(strange)}"
        raise ModelError(INVALID, tensors[strange[0]].file, text)


def _ignored(name: str, config: ModelConfig) -> bool:
    """A head beside tied embeddings, and what old checkpoints store though it follows from config.json."""
    return (name == HEAD and config.tied) or name.endswith("rotary_emb.inv_freq")


def notes(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    if config.tied and HEAD in tensors:
        return (f"{HEAD} is ignored: config.json ties it to the embeddings (tie_word_embeddings)",)
    return ()


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
