"""The tensors of a checkpoint: which a config calls for, and what is wrong with the tensors that are there. No
torch."""

from collections.abc import Mapping
from pathlib import Path

from octavo.worker.errors import INVALID, ModelError
from octavo.worker.models.folder.config import ModelConfig
from octavo.worker.models.folder.safetensors_header import Tensor

_FLOATS = ("F32", "BF16", "F16", "F64")
_HEAD = "lm_head.weight"


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what must be there, and nothing else may be."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocabulary, config.hidden)}
    layer = _layer_shapes(config)
    for index in range(config.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (config.hidden,)
    if not config.tied:
        shapes[_HEAD] = (config.vocabulary, config.hidden)
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, wide = config.hidden, config.intermediate
    rows = {"q": config.heads * config.head_dim, "k": config.kv_heads * config.head_dim}
    rows["v"] = rows["k"]
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (hidden,)}
    for name, size in rows.items():
        shapes[f"self_attn.{name}_proj.weight"] = (size, hidden)
        if config.qkv_bias:
            shapes[f"self_attn.{name}_proj.bias"] = (size,)
    if config.head_norms:
        shapes |= {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
    shapes["self_attn.o_proj.weight"] = (hidden, rows["q"])
    if config.o_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    return shapes | {
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
    }


def check_tensors(weights: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raises ModelError that names a tensor which is missing, too many, or of the wrong shape or type.

    weights: the file that lists the tensors.
    """
    expected = expected_shapes(config)
    if missing := [name for name in expected if name not in tensors]:
        raise ModelError(INVALID, weights, f"the weights lack {_some(missing)}, which config.json calls for")
    for name, shape in expected.items():
        tensor = tensors[name]
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
    return (name == _HEAD and config.tied) or name.endswith("rotary_emb.inv_freq")


def notes(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    if config.tied and _HEAD in tensors:
        return (f"{_HEAD} is ignored: config.json ties it to the embeddings (tie_word_embeddings)",)
    return ()


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
