"""config.json says what a model is: each field counts, and one that is not understood is refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.models.checkpoints import random_checkpoint, with_config

from octavo.worker.errors import ModelError
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.models.folder.config import read_config

WEIGHTS = "model.safetensors"
MISTRAL, QWEN2, QWEN3 = ({"architectures": [f"{name}ForCausalLM"]} for name in ("Mistral", "Qwen2", "Qwen3"))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"architectures": "absent"}, "architectures"),
        ({"rope_scaling": {"rope_type": "foo"}}, "'foo'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "'yarn'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "'linear'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.low_freq_factor"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, r"lack model\.layers\.0\.self_attn\.q_proj\.bias"),
        ({"attention_bias": "yes"}, "attention_bias"),
        ({"attention_bias": True, **MISTRAL}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 9.0}}}, "rope_parameters.full_attention"),
        ({"rope_parameters": {"rope_theta": 9.0}, "rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"is_causal": False}, "is_causal"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"sliding_window": 16}, "sliding_window"),
        ({"sliding_window": 0, **MISTRAL}, "sliding_window"),
        ({"layer_types": ["sliding_attention", "full_attention"] * 2, **MISTRAL}, "layer_types"),
        ({"layer_types": ["chunked_attention"] * 4, **QWEN2}, "layer_types: 'chunked_attention'"),
        ({"layer_types": ["full_attention"] * 3, **QWEN2}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 4, **QWEN2}, "layer_types: 'sliding_attention'; there is no"),
        (QWEN2, r"lack model\.layers\.0\.self_attn\.q_proj\.bias"),
        ({**QWEN3, "head_dim": 16}, r"lack model\.layers\.0\.self_attn\.q_norm\.weight"),
        ({"torch_dtype": "int8"}, "torch_dtype"),
        ({"vocab_size": 513}, "shape"),
    ],
    ids=str,
)
def test_a_config_that_is_not_understood_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], cause: str
) -> None:
    with pytest.raises(ModelError, match=cause) as caught:
        inspect(with_config(random_checkpoint(tmp_path), **changes))
    assert caught.value.reason == "ModelInvalid"


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, (0, 0, 0, 0)),
        ({"sliding_window": 16, "use_sliding_window": False}, (0, 0, 0, 0)),
        ({**MISTRAL, "sliding_window": None}, (0, 0, 0, 0)),
        ({**MISTRAL, "sliding_window": 16}, (16, 16, 16, 16)),
        (MISTRAL, (4096, 4096, 4096, 4096)),
        ({**QWEN2, "sliding_window": 16, "max_window_layers": 2}, (0, 0, 0, 0)),
        ({**QWEN2, "sliding_window": 16, "max_window_layers": 3, "use_sliding_window": True}, (0, 0, 0, 16)),
        ({**QWEN2, "sliding_window": 16, "max_window_layers": 0, "use_sliding_window": True}, (16, 16, 16, 16)),
        (
            {
                **{**QWEN2, "sliding_window": 16, "use_sliding_window": True},
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (16, 0, 16, 0),
        ),
    ],
    ids=str,
)
def test_the_config_says_which_layers_have_a_window(
    tmp_path: Path, changes: dict[str, Any], windows: tuple[int, ...]
) -> None:
    assert read_config(with_config(random_checkpoint(tmp_path), **changes))[0].windows == windows


def test_what_a_config_leaves_out_is_what_transformers_takes(tmp_path: Path) -> None:
    folder = with_config(random_checkpoint(tmp_path), **QWEN3, max_position_embeddings="absent")
    read = read_config(folder)[0]
    assert (read.head_dim, read.context_length) == (128, 32768)
    assert read_config(with_config(folder, **MISTRAL))[0].head_dim == 16


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [({}, "float32"), ({"torch_dtype": "absent"}, "float16"), ({"torch_dtype": None, "dtype": "bfloat16"}, "bfloat16")],
    ids=str,
)
def test_the_type_of_a_model_is_by_its_config_else_by_its_tensors(
    tmp_path: Path, changes: dict[str, Any], dtype: str
) -> None:
    folder = with_config(random_checkpoint(tmp_path), **changes)
    weights = {name: weight.astype(np.float16) for name, weight in load_file(folder / WEIGHTS).items()}
    save_file(weights, folder / WEIGHTS)
    assert inspect(folder).config.dtype == dtype


def test_rope_theta_is_found_in_either_place_and_is_10000_when_absent(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path)
    assert inspect(folder).config.rope.theta == 10000.0
    assert inspect(with_config(folder, rope_theta=7.0)).config.rope.theta == 7.0
    assert inspect(with_config(folder, rope_parameters={"rope_theta": 9.0})).config.rope.theta == 9.0
