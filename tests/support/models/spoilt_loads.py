"""Loads model files with something wrong in them, one after another, within bounds of time and memory.

Run in a process of its own: native code may crash, hang or swell.
"""

import faulthandler
import json
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from support.models.checkpoints import random_checkpoint
from support.models.spoilt_files import spoilt, spoilt_weights
from support.router.vocabularies import byte_level, metaspace, unigram

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import Kind, parse
from octavo.router.text.model_files import ModelFilesInvalid
from octavo.router.text.tokenizer import ModelTokenizer
from octavo.worker.errors import ModelError
from octavo.worker.models.folder.checkpoint import Checkpoint, servable
from octavo.worker.models.folder.text_files import SERVED_FILES

EACH_S = 5
ROOM_BYTES = 64 << 20
SMALL = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
INDEX, WEIGHTS, SHARD = "model.safetensors.index.json", "model.safetensors", "model-00001-of-00002.safetensors"
KINDS: dict[str, tuple[int, int, Callable[[Random, bytes], bytes]]] = {  # name: how many, shards, what is done to it
    WEIGHTS: (2_000, 1, spoilt_weights),
    SHARD: (1_000, 2, spoilt_weights),
    INDEX: (1_000, 2, spoilt),
    "config.json": (2_000, 1, spoilt),
    "generation_config.json": (1_000, 1, spoilt),
    "tokenizer_config.json": (1_000, 1, spoilt),
    "tokenizer.json": (2_000, 1, spoilt),
}
FAMILIES = (byte_level, metaspace, unigram)  # beside the checkpoint's own, whose vocabulary is single bytes


def load_all(folder: Path, name: str, report: Path) -> None:
    """Of the kind `name`. report: what was printed; beside it, as .json, how often a file was refused and loaded."""
    count, shards, spoil = KINDS[name]
    draw = Random(name)
    whole = random_checkpoint(folder, shards=shards, config=SMALL) / name
    if name == "tokenizer_config.json":
        (folder / "chat_template.jinja").unlink()  # or the template in here would not count
    goods = [whole.read_bytes()]
    if name == "tokenizer.json":
        goods += [family().to_str().encode() for family in FAMILIES]
    endings: Counter[str] = Counter()
    with report.open("w") as said:
        sys.stdout = sys.stderr = said
        faulthandler.enable(said)
        _bound_memory(max(map(len, goods)))
        for number in range(count):
            whole.write_bytes(spoil(draw, goods[number % len(goods)]))
            faulthandler.dump_traceback_later(EACH_S, exit=True, file=said)
            try:
                endings[_ending(folder, name, chats=name == "tokenizer_config.json" or number % 10 == 0)] += 1
            except BaseException:  # a panic of native code is not an Exception
                report.with_name(f"spoilt-{name}").write_bytes(whole.read_bytes())
                traceback.print_exc(limit=-6, file=said)
                raise
    report.with_suffix(".json").write_text(json.dumps(endings))


def _bound_memory(size: int) -> None:
    """To what is used now, the file and ROOM_BYTES: beyond it there is a MemoryError, or the process ends."""
    used = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:"))
    limit = int(used.split()[1]) * 1024 + size + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _ending(folder: Path, name: str, chats: bool) -> str:
    try:
        checkpoint = servable(folder)
    except ModelError as error:
        return _refused(name, str(error))
    _check_layout(folder, checkpoint)
    files = {file: (folder / file).read_bytes() for file in SERVED_FILES if (folder / file).is_file()}
    try:
        model = ModelTokenizer(files, checkpoint.context_length)
    except ModelFilesInvalid as error:
        return _refused(name, str(error))
    _use(model, "completion", {"prompt": "Hello  wörld <s>\U0001f336"})
    if chats:  # a template takes milliseconds to compile
        _use(model, "chat", {"messages": [{"role": "user", "content": "hi"}]})
    return "loaded"


def _refused(name: str, message: str) -> str:
    assert name in message, f"does not name the file: {message[:300]}"
    assert message.encode(), "it can be sent on"
    assert len(message) < 2_000, f"too long to be read: {len(message)}"
    return "refused"


def _check_layout(folder: Path, checkpoint: Checkpoint) -> None:
    for tensor in checkpoint.tensors.values():
        assert 8 <= tensor.begin <= tensor.end <= (folder / tensor.file.name).stat().st_size
    assert len(checkpoint.config.windows) == checkpoint.config.layers <= len(checkpoint.tensors)


def _use(model: ModelTokenizer, kind: Kind, body: object) -> None:
    """As requests do. A refusal of one is no fault."""
    try:
        (prompt,) = model.encode(parse(kind, body))
    except RequestError as error:
        assert error.status == 400
        return
    ids = (72, 195, 258, 300, 511)
    together, apart = model.detokeniser(prompt), model.detokeniser(prompt)
    text = together.push(ids) + together.flush()
    assert text == "".join(apart.push((token,)) for token in ids) + apart.flush()
    assert text.encode(), "a client can be sent it"
