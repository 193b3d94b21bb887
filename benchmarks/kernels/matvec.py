"""Products of one row against cuBLAS, at the shapes of two models, and whole steps of them as one graph.

Every figure is the median of replays of a graph whose launches go through more weights than the L2 holds.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from octavo.kernels.cuda.gemm import matvec

MEMORY_BYTES_PER_S = 3.0e12
EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    hidden: int
    qkv: int
    q: int
    wide: int
    vocabulary: int
    layers: int


MODELS = (
    Model("1B", 2048, 3072, 2048, 8192, 128256, 16),
    Model("8B", 4096, 6144, 4096, 14336, 128256, 32),
)
PRODUCTS = ("qkv", "o", "gate_up", "down", "head")


def shape(model: Model, product: str) -> tuple[int, int]:
    """[out, in] of a weight."""
    return {
        "qkv": (model.qkv, model.hidden),
        "o": (model.hidden, model.q),
        "gate_up": (2 * model.wide, model.hidden),
        "down": (model.hidden, model.wide),
        "head": (model.vocabulary, model.hidden),
    }[product]


def random(*size: int) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.bfloat16).normal_(0, size[-1] ** -0.5)


def replayed_us(calls: list[Callable[[], object]], replays: int = 7) -> float:
    """Microseconds of all calls in turn, as one graph."""
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(replays + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times[2:])


def calls(product: str, weights: list[torch.Tensor], count: int) -> list[Callable[[], object]]:
    """`count` launches in turn over the weights."""
    n, k = weights[0].shape
    x, norm, residual = random(1, k), random(k), random(1, n)
    one: Callable[[torch.Tensor], object]
    if product in ("o", "down"):
        one = lambda weight: matvec.linear_add(x, weight, residual)  # noqa: E731
    elif product == "gate_up":
        one = lambda weight: matvec.norm_linear_silu_mul(x, norm, EPS, weight)  # noqa: E731
    else:
        one = lambda weight: matvec.norm_linear(x, norm, EPS, weight)  # noqa: E731
    return [partial(one, weights[i % len(weights)]) for i in range(count)]


def step(model: Model, layers: list[dict[str, torch.Tensor]], head: torch.Tensor) -> Callable[[], object]:
    h, norm = random(1, model.hidden), torch.ones(model.hidden, device="cuda", dtype=torch.bfloat16)

    def run() -> None:
        for layer in layers:
            qkv = matvec.norm_linear(h, norm, EPS, layer["qkv"])
            matvec.linear_add(qkv[:, : model.q], layer["o"], h)
            act = matvec.norm_linear_silu_mul(h, norm, EPS, layer["gate_up"])
            matvec.linear_add(act, layer["down"], h)
        matvec.norm_linear(h, norm, EPS, head)

    return run


def step_of_cublas(model: Model, layers: list[dict[str, torch.Tensor]], head: torch.Tensor) -> Callable[[], object]:
    h, wide = random(1, model.hidden), random(1, model.wide)

    def run() -> None:
        for layer in layers:
            F.linear(h, layer["qkv"])
            torch.addmm(h, h, layer["o"].t())
            F.linear(h, layer["gate_up"])
            torch.addmm(h, wide, layer["down"].t())
        F.linear(h, head)

    return run


def weights_of(model: Model, layers: int) -> tuple[list[dict[str, torch.Tensor]], torch.Tensor]:
    made = [{product: random(*shape(model, product)) for product in PRODUCTS[:-1]} for _ in range(layers)]
    return made, random(*shape(model, "head"))


def row(name: str, us: float, bytes_: int, cublas_us: float) -> dict[str, object]:
    return {
        "name": name,
        "us": round(us, 2),
        "bytes": bytes_,
        "fraction": round(bytes_ / us / 1e-6 / MEMORY_BYTES_PER_S, 3),
        "cublas_us": round(cublas_us, 2),
    }


def rows() -> list[dict[str, object]]:
    table = []
    for model in MODELS:
        layers, head = weights_of(model, min(model.layers, 16))
        for product in PRODUCTS:
            weights = [head] if product == "head" else [layer[product] for layer in layers]
            count = 4 if product == "head" else 48
            ours = replayed_us(calls(product, weights, count)) / count
            x = random(1, weights[0].shape[1])
            cublas = replayed_us([partial(F.linear, x, weights[i % len(weights)]) for i in range(count)])
            table.append(row(f"{model.name} {product}", ours, weights[0].nbytes, cublas / count))
        bytes_ = sum(weight.nbytes for layer in layers for weight in layer.values()) + head.nbytes
        ours, theirs = (replayed_us([make(model, layers, head)]) for make in (step, step_of_cublas))
        table.append(row(f"{model.name} step of {len(layers)} layers", ours, bytes_, theirs))
        del layers, head
    return table


if __name__ == "__main__":
    for line in rows():
        print(line)
