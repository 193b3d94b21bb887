"""Tiny checkpoints as Hugging Face folders, made in milliseconds without torch.

successor: attention and MLP are switched off, embeddings are the identity, and the head maps each token to one other.
Greedy text is thus a script that the test writes. random: seeded weights everywhere, for what a script cannot see (KV).

Both share one tokenizer: a byte's id is its value; special tokens follow from 256; a script's longer words from 300.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from octavo.bundled import byte_level_bpe

BOS, EOS, EOT, START, END = range(256, 261)
SPECIAL = {BOS: "<s>", EOS: "</s>", EOT: "<|eot|>", START: "<|start|>", END: "<|end|>"}
FIRST_WORD = 300
VOCABULARY = 512
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
Weights = dict[str, NDArray[np.float32]]
Token = str | bytes | int  # one byte, a longer word, or an id


def successor_checkpoint(
    folder: Path,
    script: Sequence[Token] = (),
    *,
    eos: Any = EOS,
    context_length: int = 2048,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """After script[i] comes script[i+1]. Unscripted letters run through the alphabet for ever, all else leads to "a".

    Tokens of a script are distinct. eos: generation_config's eos_token_id (an id, a list or None).
    """
    words = [one for one in script if not isinstance(one, int) and len(_bytes(one)) > 1]
    ids = [_token_id(one, words) for one in script]
    assert len(set(ids)) == len(ids), "a token can have one successor only"
    follows = dict.fromkeys(range(VOCABULARY), ord("a"))
    follows |= {ord(a): ord(b) for a, b in zip(ALPHABET, ALPHABET[1:] + "a", strict=True)}
    follows |= dict(itertools.pairwise(ids))
    shape = _shape(hidden_size=VOCABULARY, intermediate_size=64, num_hidden_layers=2, num_attention_heads=8)
    shape |= {"num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": context_length} | dict(config or {})
    weights = {name: np.zeros(size, np.float32) for name, size in tensor_shapes(shape).items()}
    for name, weight in weights.items():
        if name.endswith("norm.weight"):
            weight[:] = 1
    np.fill_diagonal(weights["model.embed_tokens.weight"], 1)
    for token, follower in follows.items():
        weights["lm_head.weight"][follower, token] = 1
    return write(folder, shape, weights, eos=eos, words=words)


def random_checkpoint(
    folder: Path,
    seed: int = 0,
    *,
    eos: Any = EOS,
    shards: int = 1,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Seeded random weights (4 layers, hidden 64, 4 heads, 2 KV heads), scaled so that greedy text does not loop."""
    shape = _shape(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4)
    shape |= {"num_key_value_heads": 2} | dict(config or {})
    generator = np.random.default_rng(seed)
    weights: Weights = {}
    for name, size in tensor_shapes(shape).items():
        weight = generator.standard_normal(size, dtype=np.float32)
        if name.endswith("norm.weight"):
            weights[name] = 1 + weight / 10
        elif name.endswith(".bias"):
            weights[name] = weight * np.float32(0.5)
        elif "embed" in name:
            weights[name] = weight * np.float32(0.3 if shape["tie_word_embeddings"] else 1)
        elif "lm_head" in name:
            weights[name] = weight * np.float32(0.3)
        else:
            weights[name] = weight * np.float32(1.5 / np.sqrt(size[1]))
    return write(folder, shape, weights, eos=eos, shards=shards)


def tensor_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint's tensors, by `architectures` and `attention_bias`."""
    hidden, wide, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    keys = config["num_key_value_heads"] * head_dim
    family = config["architectures"][0].removesuffix("ForCausalLM")
    biased = bool(config.get("attention_bias"))
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (heads * head_dim, hidden),
            f"{prefix}.self_attn.k_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.v_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, heads * head_dim),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.mlp.gate_proj.weight": (wide, hidden),
            f"{prefix}.mlp.up_proj.weight": (wide, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, wide),
        }
        attention = f"{prefix}.self_attn"
        if biased or family == "Qwen2":
            sizes = {"q": heads * head_dim, "k": keys, "v": keys}
            shapes |= {f"{attention}.{name}_proj.bias": (size,) for name, size in sizes.items()}
        if biased and family != "Qwen2":
            shapes[f"{attention}.o_proj.bias"] = (hidden,)
        if family == "Qwen3":
            shapes |= {f"{attention}.{name}_norm.weight": (head_dim,) for name in "qk"}
    shapes["model.norm.weight"] = (hidden,)
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def write(
    folder: Path,
    config: Mapping[str, Any],
    weights: Weights,
    *,
    eos: Any = EOS,
    words: Sequence[Token] = (),
    shards: int = 1,
) -> Path:
    """Write a whole model folder; shards > 1 splits the weights as large models are split."""
    folder.mkdir(parents=True, exist_ok=True)
    _json(folder / "config.json", config)
    _json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": eos})
    _json(folder / "tokenizer.json", _tokenizer(words))
    _json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[BOS],
            "eos_token": SPECIAL[EOS],
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    write_weights(folder, weights, shards)
    return folder


def with_config(folder: Path, **changes: Any) -> Path:
    """Change fields of config.json; "absent" takes one away."""
    path = folder / "config.json"
    kept = {name: value for name, value in (json.loads(path.read_text()) | changes).items() if value != "absent"}
    path.write_text(json.dumps(kept))
    return folder


def write_weights(folder: Path, weights: Weights, shards: int = 1) -> None:
    """model.safetensors, or `shards` files and their index."""
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    files = [f"model-{index + 1:05}-of-{shards:05}.safetensors" for index in range(shards)]
    assigned = {name: files[index % shards] for index, name in enumerate(weights)}
    for file in files:
        part = {name: weights[name] for name, where in assigned.items() if where == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    _json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": assigned})


def _shape(**sizes: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        **sizes,
    }


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1))


def _bytes(token: str | bytes) -> bytes:
    return token.encode() if isinstance(token, str) else token


def _token_id(token: Token, words: Sequence[Token]) -> int:
    if isinstance(token, int):
        return token
    encoded = _bytes(token)
    return encoded[0] if len(encoded) == 1 else FIRST_WORD + list(words).index(token)


def _tokenizer(words: Sequence[Token]) -> dict[str, Any]:
    letters = byte_letters()
    vocabulary = {letters[byte]: byte for byte in range(256)}
    vocabulary |= {content: index for index, content in SPECIAL.items()}
    for index, word in enumerate(words):
        assert not isinstance(word, int)
        vocabulary["".join(letters[byte] for byte in _bytes(word))] = FIRST_WORD + index
    vocabulary |= {f"<|free{index}|>": index for index in set(range(VOCABULARY)) - set(vocabulary.values())}
    return byte_level_bpe(vocabulary, (), SPECIAL)


def byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for each byte."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(256 + index) for index, byte in enumerate(hidden)}
