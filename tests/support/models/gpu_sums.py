"""What ranks on GPUs do together in a test, each in its own process (gpu_ranks.py). Each tells what is wrong."""

import torch

from octavo.kernels.cuda.collectives import nccl
from octavo.kernels.cuda.elementwise import rms_norm
from octavo.worker.distributed.gloo import Gloo
from octavo.worker.runner.cuda import collectives
from octavo.worker.runner.cuda.collectives import exchange_by

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64]
SIZES = [1, 2, 3, 7, 8, 9, 127, 1000, 4096, 12289, 65536, 131073, 600_001, 5_000_003]  # the last in several chunks


NORMED = [  # rows, width
    (2, 64), (3, 4096), (63, 4096), (64, 4096), (65, 4096), (250, 4096), (1025, 4096), (40, 8192), (7, 5120),
    (300, 256), (129, 16384),
]  # fmt: skip


def given(rank: int, size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """What a rank adds; any rank can make it."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * size + rank)
    if dtype == torch.int64:
        return torch.randint(-(2**58), 2**58, (size,), generator=generator)
    return (torch.randn(size, generator=generator) * 3).to(dtype)


def total(ranks: int, size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """In the order of the ranks, in float32."""
    wide = torch.int64 if dtype == torch.int64 else torch.float32
    sums = torch.zeros(size, dtype=wide)
    for rank in range(ranks):
        sums += given(rank, size, dtype, seed).to(wide)
    return sums


def same_on_all(gloo: Gloo, x: torch.Tensor) -> bool:
    """To the bit."""
    everyone = gloo.gather(x.cpu().view(torch.uint8))
    return all(torch.equal(one, everyone[0]) for one in everyone)


def peers(gloo: Gloo) -> collectives.Peers:
    made = collectives.on_device(gloo)
    assert isinstance(made, collectives.Peers), "the GPUs do not reach each other; see the log"
    return made


def sums(gloo: Gloo) -> list[str]:
    """What is wrong."""
    together, wrong = peers(gloo), list[str]()
    for dtype in DTYPES:
        for size in SIZES:
            x = together.sum_(given(gloo.rank, size, dtype).cuda())
            if not torch.equal(x.cpu(), total(gloo.size, size, dtype).to(dtype)):
                wrong.append(f"the sum of {size} {dtype}")
            residual = given(7, size, dtype).cuda()
            together.add_sum_(residual, given(gloo.rank, size, dtype).cuda())
            wide = total(gloo.size, size, dtype)
            if not torch.equal(residual.cpu(), (given(7, size, dtype).to(wide.dtype) + wide).to(dtype)):
                wrong.append(f"the sum of {size} {dtype} onto something")
    return wrong


def norms(gloo: Gloo) -> list[str]:
    """Sums with the norm of what they make, against both apart; few rows and many, in any width."""
    together, wrong = peers(gloo), list[str]()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows, width in NORMED:
            size = rows * width
            x = given(gloo.rank, size, dtype).view(rows, width).cuda()
            residual, alone = (given(7, size, dtype).view(rows, width).cuda() for _ in range(2))
            weight = given(8, width, dtype).cuda()
            made = together.add_sum_norm_(residual, x.clone(), weight, 1e-5)
            together.add_sum_(alone, x)
            if not torch.equal(residual, alone):
                wrong.append(f"the residual of {rows} x {width} {dtype}")
            if made is None:
                if gloo.size == 2 and width * dtype.itemsize <= 32768:
                    wrong.append(f"{rows} x {width} {dtype} were not normalised")
                continue
            apart = (made.float() - rms_norm(alone, weight, 1e-5).float()).abs()
            bound = 4 * torch.finfo(dtype).eps * made.float().abs() + 1e-5
            if not bool((apart <= bound).all()):
                wrong.append(f"the norm of {rows} x {width} {dtype}, off by {float(apart.max()):.1e}")
            if not same_on_all(gloo, made.reshape(-1)[:4096]):
                wrong.append(f"ranks differ in the norm of {rows} x {width} {dtype}")
    return wrong


def in_a_hurry(gloo: Gloo) -> list[str]:
    """Small and large in turn, hundreds of times, one rank or the other behind, neither waited for."""
    together = peers(gloo)
    sizes = [SIZES[(7 * turn) % (len(SIZES) - 1)] for turn in range(400)]
    whole = {size: given(gloo.rank, size, torch.bfloat16).cuda() for size in set(sizes)}
    found = []
    for turn, size in enumerate(sizes):
        if (turn // 3 + gloo.rank) % 5 == 0:
            torch.cuda._sleep(30_000 + 1000 * (turn % 7))
        found.append(together.sum_(whole[size].clone()))
    expected = {size: total(gloo.size, size, torch.bfloat16).bfloat16() for size in set(sizes)}
    return [
        f"turn {turn}: {size}"
        for turn, (size, x) in enumerate(zip(sizes, found, strict=True))
        if not torch.equal(x.cpu(), expected[size])
    ]


def in_a_graph(gloo: Gloo) -> list[str]:
    together = peers(gloo)
    sizes = (4096, 300_000)
    source = [torch.zeros(size, dtype=torch.bfloat16, device="cuda") for size in sizes]
    target = [torch.zeros_like(x) for x in source]

    def run() -> None:
        for x, onto in zip(source, target, strict=True):
            onto.zero_()
            together.add_sum_(onto, x.clone())
            together.sum_(onto)  # twice: what all have is added up again

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    wrong = []
    for seed in range(50):
        for x, size in zip(source, sizes, strict=True):
            x.copy_(given(gloo.rank, size, torch.bfloat16, seed))
        for _ in range(20):
            graph.replay()
        for x, size in zip(target, sizes, strict=True):
            once = total(gloo.size, size, torch.bfloat16, seed).bfloat16().float()
            if not torch.equal(x.cpu(), (once * gloo.size).bfloat16()):
                wrong.append(f"replays of {size}, seed {seed}")
    return wrong


def by_nccl(gloo: Gloo) -> list[str]:
    torch.cuda.init()
    identity = exchange_by(gloo)(nccl.new_id() if gloo.rank == 0 else bytes(nccl.ID_BYTES))[0]
    together, wrong = nccl.Nccl(gloo.rank, gloo.size, identity), list[str]()
    for dtype in (torch.float32, torch.bfloat16):  # whole numbers: its order of summing is its own
        x = together.sum_(given(gloo.rank, 4099, dtype).round_().cuda())
        expected = sum(given(rank, 4099, dtype).float().round_() for rank in range(gloo.size))
        if not torch.equal(x.cpu().float(), expected):
            wrong.append(f"the sum of {dtype}")
    found = together.gather(torch.full((3,), gloo.rank, dtype=torch.int32, device="cuda"))
    if found.tolist() != [[rank] * 3 for rank in range(gloo.size)]:
        wrong.append(f"what was gathered: {found.tolist()}")
    sent = [torch.full((rank + 1,), 10 * gloo.rank + rank, device="cuda") for rank in range(gloo.size)]
    came = [torch.zeros(gloo.rank + 1, dtype=torch.int64, device="cuda") for _ in sent]
    together.swap(sent, came)
    if [one.tolist() for one in came] != [[10 * rank + gloo.rank] * (gloo.rank + 1) for rank in range(gloo.size)]:
        wrong.append(f"what was swapped: {came}")
    return wrong
