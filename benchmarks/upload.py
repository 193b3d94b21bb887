"""How fast weights get to the device: `python benchmarks/upload.py 8b [--out FILE]`.

All tensors of a checkpoint of random weights, whose files are in the page cache, as a rank streams them (worker/cuda/
upload.py), against the copy of a pinned buffer to the device again and again, which nothing on the bus can beat.
"""

import argparse
import statistics
import time
from pathlib import Path

import record
import served
import torch
from record import Found
from shapes import NAMES, checkpoint

from octavo.worker.cuda.upload import Upload
from octavo.worker.models.checkpoint import inspect
from octavo.worker.models.weights import Reader

WANTED = 0.8  # of the copy's speed
COPIED_BYTES, COPIES = 256 << 20, 20
RUNS = 5


def copy_bytes_per_s() -> float:
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
    reader = Reader(tensors)
    sources = [reader.read(name) for name in tensors]
    targets = [torch.empty(source.shape, dtype=source.dtype, device="cuda") for source in sources]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    upload = Upload(torch.device("cuda", torch.cuda.current_device()))
    for target, source in zip(targets, sources, strict=True):
        upload.copy(target, source)
    upload.finish()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", metavar="SHAPE", choices=NAMES, help=f"of weights: {', '.join(NAMES)}")
    parser.add_argument("--models", type=Path, default=served.MODELS, help="where random checkpoints lie")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    with Found(args.out, record.machine(["torch"]) | {"gpu": torch.cuda.get_device_name()}) as found:
        copied = copy_bytes_per_s()
        print(f"a pinned buffer: {copied / 1e9:.1f} GB/s", flush=True)
        for shape in args.shapes:
            folder = checkpoint(shape, args.models)
            size = inspect(folder).size_bytes
            uploaded_s(folder)  # reads the files into the page cache
            seconds = statistics.median(uploaded_s(folder) for _ in range(RUNS))
            fraction = size / seconds / copied
            verdict = "met" if fraction >= WANTED else "MISSED"
            said = f"{shape}: {size / 1e9:.2f} GB in {seconds:.2f} s, {fraction:.0%} of that"
            print(f"{said} (at least {WANTED:.0%}: {verdict})", flush=True)
            found.put(shape, {"gb": size / 1e9, "seconds": seconds, "copy_gb_s": copied / 1e9, "of_copy": fraction})


if __name__ == "__main__":
    main()
