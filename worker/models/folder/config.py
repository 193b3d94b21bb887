"""config.json and generation_config.json of a Hugging Face folder, checked into one frozen value. No torch.

What is not understood is refused by name: a model must never run with settings that were silently dropped.
"""

from dataclasses import replace
from pathlib import Path

from octavo.worker.errors import INVALID, ModelError
from octavo.worker.models.architecture import Architecture
from octavo.worker.models.config.family import Family, Served
from octavo.worker.models.config.json_fields import FieldInvalid, Json, flag, number, whole, wrong
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.rope import read_rope
from octavo.worker.models.folder.json_files import read_json
from octavo.worker.models.folder.windows import read_windows
from octavo.worker.models.linear_methods.registry import METHODS, layer_tensors, read_method
from octavo.worker.models.registry import ARCHITECTURES

DTYPES = ("float32", "bfloat16", "float16")
MAX_LAYERS = 4096  # several times the most of any model; all their tensors are named before any is looked for

_NEUTRAL: Served = {
    "mlp_bias": ((False,), "biases of the MLP are not supported"),
    "partial_rotary_factor": ((1,), "only the rotation of whole heads is supported"),
    "rope_interleaved": ((False,), "only the rotation of halves is supported"),
    "is_causal": ((True,), "only causal attention is supported"),
    "use_bidirectional_attention": ((False,), "only causal attention is supported"),
    "attn_logit_softcapping": ((), "capped logits are not supported"),
    "final_logit_softcapping": ((), "capped logits are not supported"),
    "compression_config": (({},), "quantised checkpoints are not supported"),
}


def read_config(folder: Path) -> tuple[ModelConfig, Json]:
    """Parse `folder`/config.json; the raw object comes with it. Raises ModelError."""
    path = folder / "config.json"
    raw = read_json(path, required=True)
    try:
        return _config(raw), raw
    except FieldInvalid as error:
        raise ModelError(INVALID, path, str(error)) from None


def read_eos_ids(folder: Path, config: Json, vocabulary: int) -> tuple[int, ...]:
    """generation_config.json decides (an id, a list, or null: none); without the file or the key, config.json does."""
    path = folder / "generation_config.json"
    generation = read_json(path, required=False)
    if "eos_token_id" not in generation:
        path, generation = folder / "config.json", config
    value = generation.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in ids):
        raise ModelError(INVALID, path, f"eos_token_id: {value!r} is neither an id, a list of ids, nor null")
    if beyond := [one for one in ids if one >= vocabulary]:
        raise ModelError(INVALID, path, f"eos_token_id: {beyond[0]} is not in the vocabulary of {vocabulary}")
    return tuple(ids)


def _config(raw: Json) -> ModelConfig:
    name, architecture = _architecture(raw)
    family = architecture.family
    raw = {**family.defaults, **raw}
    _refuse_unsupported(raw, family)
    method = read_method(raw)
    heads = whole(raw, "num_attention_heads")
    kv_heads = whole(raw, "num_key_value_heads", heads)
    hidden, layers = whole(raw, "hidden_size"), whole(raw, "num_hidden_layers", most=MAX_LAYERS)
    if heads % kv_heads:
        wrong("num_key_value_heads", kv_heads, f"it must divide num_attention_heads ({heads})")
    head_dim = whole(raw, "head_dim", hidden // heads or None)
    if head_dim % 2:
        wrong("head_dim", head_dim, "rotary embeddings need an even one")
    context = whole(raw, "max_position_embeddings")
    qkv_bias, o_bias = _biases(raw, family)
    config = ModelConfig(
        architecture=name,
        vocabulary=whole(raw, "vocab_size"),
        hidden=hidden,
        intermediate=whole(raw, "intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=number(raw, "rms_norm_eps", 1e-6),
        context_length=context,
        tied=flag(raw, "tie_word_embeddings"),
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        head_norms=family.head_norms,
        windows=read_windows(raw, family, layers),
        dtype=_dtype(raw),
        rope=read_rope(raw, context),
        linear_method=method,
        layer_tensors={},
    )
    return replace(config, layer_tensors=layer_tensors(architecture.parameters(config), METHODS[method]))


def _architecture(raw: Json) -> tuple[str, Architecture]:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        wrong("architectures", names, "it must name one architecture")
    if names[0] not in ARCHITECTURES:
        wrong("architectures", names[0], f"this architecture is not supported; supported: {', '.join(ARCHITECTURES)}")
    return names[0], ARCHITECTURES[names[0]]


def _biases(raw: Json, family: Family) -> tuple[bool, bool]:
    """Whether q, k and v have one, and whether o has."""
    if family.biases == "qkv":  # whatever attention_bias says: transformers does not look at it
        return True, False
    asked = flag(raw, "attention_bias")
    if asked and family.biases == "none":
        wrong("attention_bias", True, "this architecture has no biases")
    return asked, asked


def _refuse_unsupported(raw: Json, family: Family) -> None:
    for key, (neutral, why) in {**family.served, **_NEUTRAL}.items():
        if raw.get(key) is not None and raw[key] not in neutral:
            wrong(key, raw[key], why)


def says_dtype(raw: Json) -> bool:
    return bool(raw.get("dtype") or raw.get("torch_dtype"))


def _dtype(raw: Json) -> str:
    name = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    if name not in DTYPES:
        wrong("torch_dtype", name, f"it must be one of {', '.join(DTYPES)}")
    return str(name)
