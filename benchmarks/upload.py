"""How fast weights get to the device: `python benchmarks/upload.py 8b [--out FILE]`.

All tensors of a checkpoint of random weights, whose files are in the page cache, as a rank streams them (kernels/cuda/
upload.py), against what cannot be beaten: the bus's copy of one pinned buffer to the device, again and again.
"""

import argparse
import statistics
import time
from contextlib import closing
from pathlib import Path

import record
import served
import torch
from record import Found
from shapes import NAMES, checkpoint

from octavo.kernels.cuda import upload
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.models.weights import TensorReader

WANTED = 0.8  # of the bus's speed
COPIED_BYTES, COPIES = 256 << 20, 20
RUNS = 5


def bus_bytes_per_s() -> float:
    pinned = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target.copy_(pinned, non_blocking=True)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(COPIES):
        target.copy_(pinned, non_blocking=True)
    torch.cuda.synchronize()
    return COPIES * COPIED_BYTES / (time.perf_counter() - begin)


@torch.inference_mode()
def uploaded_s(folder: Path) -> float:
    """Of one upload, from files that are mapped for it as a rank maps them."""
    tensors = inspect(folder).tensors
    reader = TensorReader(tensors)
    sources = [reader.read(name) for name in tensors]
    targets = [torch.empty(source.shape, dtype=source.dtype, device="cuda") for source in sources]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with closing(upload.Upload(torch.device("cuda"))) as making:
        for target, source in zip(targets, sources, strict=True):
            making.copy(target, source)
        making.finish()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", metavar="SHAPE", choices=NAMES, help=f"of weights: {', '.join(NAMES)}")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    with Found(args.out, record.machine(["torch"]) | {"gpu": torch.cuda.get_device_name()}) as found:
        bus = bus_bytes_per_s()
        for shape in args.shapes:
            folder = checkpoint(shape, args.models)
            size = inspect(folder).size_bytes
            uploaded_s(folder)  # reads the files into the page cache
            seconds = statistics.median(uploaded_s(folder) for _ in range(RUNS))
            rate = size / seconds
            print(f"{shape}: {size / 1e9:.2f} GB in {seconds:.2f} s, {rate / 1e9:.1f} GB/s")
            said = "met" if rate / bus >= WANTED else "MISSED"
            print(f"  the bus alone {bus / 1e9:.1f} GB/s: {rate / bus:.0%}, wanted {WANTED:.0%}: {said}", flush=True)
            figures = {"gb": size / 1e9, "seconds": seconds, "bus_gb_s": bus / 1e9, "of_bus": rate / bus}
            found.put(shape, figures)


if __name__ == "__main__":
    main()
