"""Small tokenizers of three families, made in a second, and the folders of files that a leader serves of them."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = [
    "The capital of France is Paris, and it's a city of 2,102,650 people.",
    "def follow(self, names): return [name for name in names if name not in self.seen]",
    "Once upon a time there was a router that never cut a stream, and everyone's answers came whole.",
    "naïve café Ďábel 日本語のテキスト emoji 🌶 and the quick brown fox jumps over the lazy dog 1234567890",
] * 4
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = Path(__file__).parents[1] / "chat_templates"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x"
SWELL = "{% set ns = namespace(s='x' * 64) %}{% for _ in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
ESCAPE = "{{ ''.__class__.__mro__[1].__subclasses__() }}"


def byte_level(specials: list[str] | None = None, digits: bool = True, vocabulary: int = 700) -> Tokenizer:
    """As SmolLM2's: GPT-2's splitter after single digits. Without BOS."""
    tokenizer = Tokenizer(models.BPE())
    byte_splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    parts = [pre_tokenizers.Digits(individual_digits=True), byte_splitter] if digits else [byte_splitter]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIALS if specials is None else specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def metaspace(vocabulary: int = 400) -> Tokenizer:
    """As Llama 2's: words begin with a visible space, unknown characters fall back to bytes; BOS <s>."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    specials = ["<unk>", "<s>", "</s>"]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary + 256, special_tokens=[*specials, *fallback], show_progress=False
    )
    tokenizer.train_from_iterator(["the quick brown fox is in the house of the king " * 3], trainer)
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = [item for item in described["added_tokens"] if item["content"] in specials]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def unigram(vocabulary: int = 300) -> Tokenizer:
    """As Gemma's: SentencePiece's unigram model, every space visible, unknown characters fall back to bytes."""
    fallback = [(f"<0x{byte:02X}>", -12.0) for byte in range(256)]
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator([line for text in TEXT for line in text.split(",")], trainer)
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    rare = [(piece, score) for piece, score in pieces if piece.isascii() or "▁" in piece]
    tokenizer = Tokenizer(models.Unigram([*map(tuple, rare), *fallback], unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def template(name: str) -> str:
    """One of ours, in the shape of a real model's."""
    return (TEMPLATES / f"{name}.jinja").read_text()


def files(tokenizer: Tokenizer, template: str | None = CHATML, **settings: object) -> dict[str, bytes]:
    """What a leader serves. settings: of tokenizer_config.json."""
    config = {"vocab_size": tokenizer.get_vocab_size()}
    made = {
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": json.dumps({"eos_token": "<|im_end|>"} | settings).encode(),
        "config.json": json.dumps(config).encode(),
    }
    return made if template is None else made | {"chat_template.jinja": template.encode()}


def write(folder: Path, made: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return folder
