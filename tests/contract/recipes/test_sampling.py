"""The recipe for a sampling field in CONTRIBUTING.md works: it is followed in a copy of the tree, in the files that it
names, from a client's body to what the CPU's sampler draws."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.recipes import ROOT, copy_tree, follow, insert, recipe

# Each place on the way, with the wires between them.
WAY = """
from array import array

import torch

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch import wire
from octavo.router.jobs.generation import Job, RequestError
from octavo.router.openai_api.openai import KNOWN, parse
from octavo.worker.leader.admission.submit import Rules, read_submit
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.request import FEATURES, Invalid
from octavo.worker.messages.step import Admit, Forward, Sample, Step
from octavo.worker.runner.cpu.logits_processors import LogitsProcessors
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary, sample
from octavo.worker.runner.cuda.logits_processors import GPU_FEATURES

LOGITS = (0.0, 3.0, 1.0, 2.0)


def requested(**fields):
    return parse("completion", {"prompt": [1], "temperature": 0, **fields})


def submitted(request, features=frozenset(FEATURES)):
    sent = wire.submit(1, Job("r", array("I", [1]).tobytes(), request.sampling, 1)).SerializeToString()
    rules = Rules(len(LOGITS), 9, 16, frozenset(), prefix_caching=False, features=features)
    return read_submit(engine_pb2.FromRouter.FromString(sent).submit, 1, rules)


def admitted(new):
    queued = decode(encode(new))
    step = Step(1, Forward((Admit(0, queued.prompt, queued.sampling, 0),)), Sample((0,), (0,)))
    (admit,) = decode(encode(step)).forward.admits
    return admit


def drawn(**fields):
    vocabulary, zero = Vocabulary(len(LOGITS)), torch.zeros(1, dtype=torch.int64)
    processors = LogitsProcessors(vocabulary, torch.zeros((1, 9), dtype=torch.int64))
    processors.admit(admitted(submitted(requested(**fields))))
    logits = torch.tensor([LOGITS])
    processors.adjust(logits, [0], [1])
    ids, _ = sample(logits, Draw(zero.float(), zero, torch.ones(1), zero, zero, processors.min_p([0])), vocabulary)
    return ids.item()


def refusal(error, act):
    try:
        act()
    except error as refused:
        return refused.field
    raise AssertionError("nothing was refused")
"""
IS_DRAWN = """
from dataclasses import replace

from octavo.router.api_document.openapi import BODIES

assert [drawn(), drawn(toy_bias=2.5), drawn(toy_bias=5)] == [1, 1, 0]
asked = requested(toy_bias=5)
assert asked.sampling.features == ("toy_bias",) and "toy_bias" not in requested().sampling.features
assert submitted(requested()).sampling.to_bytes() == b"", "a request without it pays nothing"
beyond = replace(asked, sampling=replace(asked.sampling, toy_bias=11.0))
assert refusal(RequestError, lambda: requested(toy_bias=11)) == "toy_bias"
assert refusal(Invalid, lambda: submitted(beyond)) == "toy_bias"
assert refusal(Invalid, lambda: submitted(asked, frozenset())) == "toy_bias"
assert "toy_bias" in KNOWN["chat"] & KNOWN["completion"]
documented = BODIES["completion"].schema()["properties"]["toy_bias"]
assert documented == {"type": ["number", "null"], "minimum": -10.0, "maximum": 10.0}, documented
"""
REACHES_THE_KERNEL = """
import numpy as np

from octavo.kernels.cuda.sampling.adjust import pack_changes_of_logits
from octavo.worker.runner.cuda.logits_processors import changes_of

assert "toy_bias" in FEATURES and "toy_bias" in GPU_FEATURES
words = pack_changes_of_logits(changes_of(admitted(submitted(requested(toy_bias=5))).sampling, 1), len(LOGITS))
assert words[10:11].view(np.float32).tolist() == [5.0]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_tree(tmp_path)


def make_proto(tree: Path) -> None:
    """`make proto`, by the environment that runs the tests."""
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "setup", "proto", f"VENV={sys.prefix}"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_sampling_field_is_six_files(tree: Path) -> None:
    """The toy: what is added to the logit of token 0. There is no kernel here to apply what is packed for it."""
    message, params, parser, cpu, packer, kernel = recipe("A sampling field")
    insert(tree / message, "}\n\nmessage Limits {", "  float toy_bias = 16;\n")
    make_proto(tree)
    field = "    toy_bias: float = _feature(0.0, Range(-10.0, 10.0), logits=True)\n"
    insert(tree / params, "    forbidden: tuple[int, ...] = ()\n", field)
    insert(tree / parser, '    "logit_bias": _bias,\n', '    "toy_bias": _number("toy_bias"),\n')
    change = "    if columns.first == 0:\n        logits[0] += params.toy_bias\n"
    insert(tree / cpu, "    if (penalty := params.repetition_penalty) != 1:\n", change)
    insert(tree / packer, "\n\nclass Row(NamedTuple):", "    toy_bias: float = 0.0\n")
    words = "    header[10:11] = np.array([changes.toy_bias], np.float32).view(np.int32)\n"
    insert(tree / packer, "    values = np.array([value for _, value", words)
    follow(tree, WAY + IS_DRAWN + REACHES_THE_KERNEL)
    assert (ROOT / kernel).is_file()
