"""Checkpoints of well-known shapes with random weights: enough to measure speed, of no use for text.

They are written once, as safetensors, so that the loader that is measured is the one that users have.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tqdm import tqdm

from octavo.worker.models.folder.config import read_config

_SHARD_BYTES = 4 << 30
_COMMON: dict[str, Any] = {  # JSON
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": 128009,
    "torch_dtype": "bfloat16",
}


def _scaling(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip


SHAPES: dict[str, dict[str, Any]] = {
    "1b": _COMMON | {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
        "tie_word_embeddings": True, "rope_scaling": _scaling(32.0),
    },
    "8b": _COMMON | {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128,
        "tie_word_embeddings": False, "rope_scaling": _scaling(8.0),
    },
    "qwen8b": _COMMON | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": 36, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    },
}  # fmt: skip
NAMES = {"1b": "Llama-3.2-1B", "8b": "Llama-3.1-8B", "qwen8b": "Qwen3-8B"}


def checkpoint(name: str, root: Path) -> Path:
    """The folder of one of NAMES under `root`; written unless it is there."""
    folder = root / name
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[name]))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(SHAPES[name]["vocab_size"])))
    _write(folder, {name: spec.shape for name, spec in read_config(folder)[0].tensors().items()})
    (folder / "done").touch()
    return folder


def _write(folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator(device).manual_seed(0)
    index: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    size = 0

    def flush() -> None:
        nonlocal size
        file = f"model-{len(set(index.values())) + 1:05}.safetensors"
        save_file(shard, folder / file)
        index.update(dict.fromkeys(shard, file))
        shard.clear()
        size = 0

    for tensor, shape in tqdm(shapes.items(), desc="writing random weights", disable=None):
        values = torch.empty(shape, dtype=torch.bfloat16, device=device)
        if len(shape) == 1:
            values.fill_(1.0)
        else:
            values.normal_(0.0, 0.02, generator=generator)
        shard[tensor] = values.cpu()
        size += values.numel() * 2
        if size > _SHARD_BYTES:
            flush()
    flush()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def _tokenizer(vocabulary: int) -> dict[str, Any]:
    """One word for each id: `t17 t18` is [17, 18]."""
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {f"t{id_}": id_ for id_ in range(vocabulary)}, "unk_token": "t0"},
    }  # fmt: skip
