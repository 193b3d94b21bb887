"""The worker's recipes in CONTRIBUTING.md work: each is followed in a copy of the tree, in the files that it names."""

from pathlib import Path

import pytest
from support.recipes import ROOT, copy_tree, follow, insert, recipe

SEED_OSS = '''"""Seed-OSS: Llama with biases of q, k and v. No torch."""

from octavo.worker.models import llama
from octavo.worker.models.architecture import Architecture
from octavo.worker.models.config.family import SILU, Family

DEFAULTS = {"max_position_embeddings": 524288, "num_key_value_heads": 8, "head_dim": 128}
SERVED = {
    **SILU,
    "attention_bias": ((True,), "only Seed-OSS with biases is supported"),
    "attention_out_bias": ((False,), "biases of the output are not supported"),
}
ARCHITECTURE = Architecture(Family(DEFAULTS, biases="qkv", served=SERVED), llama.parameters, llama.LlamaLayer)
'''
EXAONE = '''"""EXAONE 4 with GELU and no windows: layers read the stream as it is, and normalise what they add."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.worker.models import llama
from octavo.worker.models.architecture import Architecture
from octavo.worker.models.config.family import Family
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.tensor_specs import Parameters, Vector

if TYPE_CHECKING:
    import torch

    from octavo.worker.models.attention import Attend, LayerAttention
    from octavo.worker.models.linear_methods.linear_method import Linear
    from octavo.worker.models.residual import Residual, Rows


def parameters(config: ModelConfig) -> Parameters:
    kept = {name: one for name, one in llama.parameters(config).items() if name not in ("input_norm", "post_norm")}
    names = ("attention", "feedforward")
    return {**kept, **{f"{name}_norm": Vector(f"post_{name}_layernorm.weight", config.hidden) for name in names}}


@dataclass(frozen=True, slots=True)
class Exaone4Layer:
    attention: "LayerAttention"
    qkv: "Linear"
    o: "Linear"
    gate_up: "Linear"
    down: "Linear"
    attention_norm: "torch.Tensor"
    feedforward_norm: "torch.Tensor"

    def layer(self, x: "Residual", attend: "Attend") -> None:
        x.add_normed(attend(self.attention, x.linear(self.qkv)), self.o, self.attention_norm)
        x.each(self._mlp)

    def _mlp(self, rows: "Rows") -> None:
        rows.add_normed(rows.linear_gelu_mul(self.gate_up), self.down, self.feedforward_norm)


DEFAULTS = {"max_position_embeddings": 2048, "num_key_value_heads": 32, "sliding_window": 4096}
SERVED = {"hidden_act": (("gelu",), "only gelu is supported")}
ARCHITECTURE = Architecture(Family(DEFAULTS, head_norms=True, served=SERVED), parameters, Exaone4Layer)
'''
ROWS = '''
    def linear(self, linear: Linear) -> torch.Tensor:
        return linear.linear(self.whole())

    def linear_gelu_mul(self, linear: Linear) -> torch.Tensor:
        gate, up = linear.linear(self.whole()).chunk(2, dim=-1)
        return torch.nn.functional.gelu(gate) * up

    def add_normed(self, inputs: torch.Tensor, linear: Linear, norm: torch.Tensor) -> None:
        """x += rms_norm of the sum over the ranks of inputs W^T."""
        total = self._sum(linear.linear(inputs))
        self.whole().add_(torch.nn.functional.rms_norm(total, norm.shape, norm, self._eps))

    def _sum(self, part: torch.Tensor) -> torch.Tensor:
        return part
'''
SUMMED_ROWS = """
    def _sum(self, part: torch.Tensor) -> torch.Tensor:
        return self._collective.sum_(part)
"""
HALF = """
    def _sum(self, part: torch.Tensor) -> torch.Tensor:
        self._collective.begin_sum(part)()
        return part
"""
HALVES = """
    def linear(self, linear: Linear) -> torch.Tensor:
        return torch.cat([half.linear(linear) for half in self._halves])

    def add_normed(self, inputs: torch.Tensor, linear: Linear, norm: torch.Tensor) -> None:
        for half, rows in zip(self._halves, inputs.tensor_split(2), strict=True):
            half.add_normed(rows, linear, norm)
"""
HALF_PRECISION = '''"""Weights in float16 with a scale for each row; loading makes them whole again, on CPUs at once."""

from octavo.worker.models.config.tensor_specs import Split, TensorSpec
from octavo.worker.models.linear_methods.unquantized import Unquantized


class HalfPrecision:
    _whole = Unquantized()

    def tensors(self, part, shape):
        split = Split.WHOLE if part.split is Split.COLUMNS else part.split
        return {**self._whole.tensors(part, shape), "scale": TensorSpec((part.outputs,), split)}

    def load(self, tensors, kernels):
        return self._whole.load({**tensors, "weight": tensors["weight"] * tensors["scale"][:, None]}, kernels)
'''
SHELF = '''"""shelf://NAME: a folder of SHELF."""

from pathlib import Path

from octavo.shared.model_uri import ModelUri
from octavo.worker.errors import NOT_FOUND, ModelError
from octavo.worker.models.sources.source import Progress


class Shelf:
    def folder(self, uri: ModelUri, progress: Progress | None) -> Path:
        folder = Path("SHELF") / uri.rest
        if not folder.is_dir():
            raise ModelError(NOT_FOUND, uri.text, "no such model on the shelf")
        return folder
'''
SHELF_ROW = """    "shelf": Scheme(NAME, "shelf://NAME", "shelf://NAME (a model of the shelf)", local=True),
"""
# Random weights of the copy's own table, and runners of the copy; helpers of the tests beside it.
CHECKPOINT = (
    f"TESTS = {str(ROOT / 'tests')!r}"
    + """
import json
from dataclasses import replace

import numpy, torch

sys.path.append(TESTS)
from octavo.worker.errors import ModelError
from octavo.worker.models.folder.config import read_config
assert "octavo.worker.models.residual" not in sys.modules, "config.json is read without what computes"
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner
from support.models.checkpoints import _shape, write
from support.models.logits import difference
from support.worker.ranks import Ranks

PROMPT = [(7 * index * index + 3) % 250 for index in range(45)]
SMALL = dict(num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2)


def described(name, **config):
    folder = tree / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(_shape(**SMALL) | config))
    return folder, json.loads((folder / "config.json").read_text())


def random_weights(folder):
    generator, weights = numpy.random.default_rng(3), {}
    for name, spec in read_config(folder)[0].tensors().items():
        values = generator.standard_normal(spec.shape, numpy.float32)
        weights[name] = 1 + values / 10 if len(spec.shape) == 1 else values * numpy.float32(1.5 / spec.shape[1] ** 0.5)
    return weights


def runners(folder):
    settings = RunnerConfig(folder, max_requests=2, kv_cache_bytes=1 << 20)
    yield Runner(settings)
    yield Runner(replace(settings, backend="reference"))
    for late in (False, True):
        group = Ranks(settings, 2, 1, late=late)
        yield group
        group.close()


def refused(folder, config, field, value):
    (folder / "config.json").write_text(json.dumps(config | {field: value}))
    try:
        read_config(folder)
    except ModelError as error:
        return field in error.message
    return False
"""
)
AGREES_WITH_TRANSFORMERS = """
from support.models.oracle import Oracle

folder, config = described("model", **CONFIG)
write(folder, config, random_weights(folder))
oracle = Oracle(folder)
apart = [difference(runner, oracle, 20, PROMPT) for runner in runners(folder)]
assert len(apart) == 4 and max(apart) < 1e-4, apart
assert all(refused(folder, config, field, value) for field, value in REFUSED.items())
"""
SEED_OSS_CONFIG = """
CONFIG = {"architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "head_dim": 16, "attention_bias": True}
REFUSED = {"attention_out_bias": True, "attention_bias": False, "hidden_act": "gelu"}
"""
EXAONE_CONFIG = """
CONFIG = {"architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "head_dim": 16, "hidden_act": "gelu"}
CONFIG |= {"sliding_window": None, "layer_types": ["full_attention"] * 2}
REFUSED = {"sliding_window": 16, "hidden_act": "silu"}
"""
EQUALS_DEQUANTIZED = """
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step


def logits(runner):
    admit, blocks = Admit(0, tuple(PROMPT), SamplingParams(), 0), Blocks(0, 0, (0, 1, 2))
    forward = Forward((admit,), (blocks,), (0,), (0,), (len(PROMPT),))
    step = Step(1, forward, Sample())
    return runner.logits(step if isinstance(runner, Ranks) else runner.forward(step))


named = {"quantization_config": {"quant_method": "half-precision"}}
folder, config = described("quantized", attention_bias=True, **named)
weights = random_weights(folder)
scales = [name for name in weights if name.endswith(".scale")]
assert len(scales) == 14
for name in scales:
    weights[name.replace(".scale", ".weight")] = weights[name.replace(".scale", ".weight")].astype(numpy.float16)
write(folder, config, weights)
for name in scales:
    weight, scale = name.replace(".scale", ".weight"), weights.pop(name)
    weights[weight] = weights[weight].astype(numpy.float32) * scale[:, None]
whole, config = described("whole", attention_bias=True)
write(whole, config, weights)
pairs = [tuple(map(logits, pair)) for pair in zip(runners(folder), runners(whole), strict=True)]
assert len(pairs) == 4 and all(torch.equal(*pair) for pair in pairs)
assert refused(folder, config, "quantization_config", {"quant_method": "awq"})
"""
FINDS_A_MODEL = """
from octavo.operator.api.schema import crd_schema
from octavo.operator.api.v1alpha1 import SpecError, parse
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import plan
from octavo.worker.errors import ModelError
from octavo.worker.models.sources.resolve import resolve


def resource(uri):
    metadata = {"name": "chat", "namespace": "default", "uid": "u", "generation": 1}
    spec = {"model": {"uri": uri}}
    return {"apiVersion": "octavo.dev/v1alpha1", "kind": "InferenceService", "metadata": metadata, "spec": spec}


model = crd_schema()["properties"]["spec"]["properties"]["model"]
assert "shelf://NAME (a model of the shelf)" in model["properties"]["uri"]["description"]
assert "^shelf://" in str(model["x-kubernetes-validations"])
objects = [item.object for item in plan(parse(resource("shelf://llama")), Snapshot(), Options(), 0.0).apply]
(group,) = [object for object in objects if object["kind"] == "StatefulSet"]
pod = group["spec"]["template"]["spec"]
assert "--model=shelf://llama" in pod["containers"][0]["args"]
assert all(volume["name"] != "models" for volume in pod["volumes"])
try:
    parse(resource("shelf://llama/../other"))
    raise AssertionError("a path is accepted")
except SpecError as error:
    assert "shelf://NAME" in str(error)

shelf = tree / "shelf"
(shelf / "llama").mkdir(parents=True)
assert resolve("shelf://llama") == shelf / "llama"
for uri, text in (("shelf://other", "no such model on the shelf"), ("s3://x", "use bundled://, shelf://, file://")):
    try:
        resolve(uri)
        raise AssertionError(uri)
    except ModelError as error:
        assert text in error.message
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """With the kernels that are built here."""
    (copy_tree(tmp_path) / "kernels/lib").symlink_to(ROOT / "kernels/lib")
    return tmp_path


def add_architecture(tree: Path, module: str, registry: str, name: str, text: str, architecture: str) -> None:
    assert (module, registry) == ("worker/models/NAME.py", "worker/models/registry.py")
    (tree / module.replace("NAME", name)).write_text(text)
    imported = f"from octavo.worker.models import {name}\n"
    insert(tree / registry, "from octavo.worker.models.architecture", imported)
    insert(tree / registry, '    "MistralForCausalLM"', f'    "{architecture}": {name}.ARCHITECTURE,\n')


def test_a_llama_like_architecture_is_a_module_and_a_line(tree: Path) -> None:
    module, registry = recipe("A Llama-like architecture")
    add_architecture(tree, module, registry, "seed_oss", SEED_OSS, "SeedOssForCausalLM")
    follow(tree, CHECKPOINT + SEED_OSS_CONFIG + AGREES_WITH_TRANSFORMERS)


def test_an_architecture_with_other_norms_and_activations_is_four_files(tree: Path) -> None:
    module, registry, residual, overlap = recipe("An architecture with other norms and activations")
    add_architecture(tree, module, registry, "exaone4", EXAONE, "Exaone4ForCausalLM")
    insert(tree / residual, "\n\nclass PendingRows(Rows):", ROWS)
    append(tree / residual, SUMMED_ROWS)
    insert(tree / overlap, "\n\nclass Halves:", HALF)
    append(tree / overlap, HALVES)
    follow(tree, CHECKPOINT + EXAONE_CONFIG + AGREES_WITH_TRANSFORMERS)


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_a_linear_method_is_a_module_and_a_line(tree: Path) -> None:
    module, registry = recipe("A linear method")
    assert module == "worker/models/linear_methods/NAME.py"
    (tree / module.replace("NAME", "half_precision")).write_text(HALF_PRECISION)
    imported = "from octavo.worker.models.linear_methods.half_precision import HalfPrecision\n"
    insert(tree / registry, "from octavo.worker.models.linear_methods.linear_method", imported)
    insert(tree / registry, "}\n\n\ndef read_method", '    "half-precision": HalfPrecision(),\n')
    follow(tree, CHECKPOINT + EQUALS_DEQUANTIZED)


def test_a_model_source_is_a_row_a_module_and_a_line(tree: Path) -> None:
    uri, module, table = recipe("A model source")
    assert module == "worker/models/sources/NAME.py"
    insert(tree / uri, '    "pvc": Scheme(', SHELF_ROW)
    (tree / module.replace("NAME", "shelf")).write_text(SHELF.replace("SHELF", str(tree / "shelf")))
    insert(
        tree / table,
        "from octavo.worker.models.sources.source",
        "from octavo.worker.models.sources.shelf import Shelf\n",
    )
    insert(tree / table, '    "file": LocalFolder()', '    "shelf": Shelf(),\n')
    follow(tree, FINDS_A_MODEL)
