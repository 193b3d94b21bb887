"""Makes an installed CUDA build of torch import and run on a machine without a GPU or NVIDIA's packages, and smaller.

- Each NVIDIA library that torch links becomes a stub whose functions return 100 (cudaErrorNoDevice), so
  torch.cuda.is_available() is False and all CPU code is torch's own, unchanged.
- The GPU machine code (.nv_fatbin) and the symbol tables are cut out of torch's libraries; headers go too.

usage: torch_cpu.py SITE_PACKAGES     (needs gcc and readelf; torch installed with --no-deps)
"""

import pathlib
import re
import shutil
import struct
import subprocess
import sys

PAGE = 4096


def readelf(*args):
    return subprocess.run(["readelf", "-W", *map(str, args)], check=True, capture_output=True, text=True).stdout


def symbols(path):
    """({undefined name: version}, {defined name})"""
    undefined, defined = {}, set()
    for line in readelf("--dyn-syms", path).splitlines():
        f = line.split()
        if len(f) >= 8 and f[0][:-1].isdigit():
            name, _, version = f[7].partition("@")
            if f[6] == "UND":
                undefined[name] = version.lstrip("@")
            else:
                defined.add(name)
    return undefined, defined


def shrink(path):
    """Keeps only what the loader maps, without the GPU code: symbol tables and section headers go."""
    fat = re.search(r"\.nv_fatbin +PROGBITS +([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", readelf("-S", path))
    src = path.read_bytes()
    head = bytearray(src[:64])
    n = struct.unpack_from("<H", head, 56)[0]
    phdrs = [
        list(struct.unpack_from("<IIQQQQQQ", src, 64 + 56 * i)) for i in range(n)
    ]  # type flags off vaddr paddr filesz memsz align
    if struct.unpack_from("<Q", head, 32)[0] != 64:
        return
    if fat:
        lo, size = int(fat[1], 16), int(fat[2], 16)
        cut0, cut1 = -(-lo // PAGE) * PAGE, (lo + size) // PAGE * PAGE
        i = next(i for i, p in enumerate(phdrs) if p[0] == 1 and p[3] <= lo < p[3] + p[5])
        p = phdrs[i]
        a, b = p[:], p[:]
        a[5] = a[6] = cut0 - p[3]
        b[2], b[3], b[4] = p[2] + cut1 - p[3], cut1, cut1
        b[5] = b[6] = p[3] + p[5] - cut1
        phdrs[i : i + 1] = [a, b]
        phdrs.remove(next(q for q in phdrs if q[0] == 4))  # the build-id note makes room for the added segment
    assert len(phdrs) <= n
    out, moved = bytearray(64 + 56 * n), []
    for p in phdrs:
        if p[0] == 1:
            at = max(len(out), 0)
            at += (p[3] - at) % PAGE if p[2] else -at
            moved.append((p[3], p[5], at))
            out.extend(bytes(at + p[5] - len(out))) if at + p[5] > len(out) else None
            out[at : at + p[5]] = src[p[2] : p[2] + p[5]]
    for p in phdrs:
        for vaddr, size, at in moved:
            if p[5] and vaddr <= p[3] < vaddr + max(size, 1):
                p[2] = at + p[3] - vaddr
                break
    struct.pack_into("<Q", head, 40, 0)  # e_shoff
    struct.pack_into("<HHHH", head, 54, 56, len(phdrs), 64, 0)  # e_phentsize, e_phnum, e_shentsize, e_shnum
    struct.pack_into("<H", head, 62, 0)
    out[:64] = head
    for i, p in enumerate(phdrs):
        struct.pack_into("<IIQQQQQQ", out, 64 + 56 * i, *p)
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(out)
    path.chmod(mode)


STUB = """static const char text[] = "stub: no GPU";
const char *stub_text(void) { return text; }
long stub_error(void) { return 100; }
"""


def alias(name):
    target = "stub_text" if re.search("String|ErrorName", name) else "stub_error"
    return f'__asm__(".globl {name}\\n.type {name},@function\\n.set {name},{target}");\n'


def stub(path, names, version):
    source, script = path.parent / "stub.c", path.parent / "stub.map"
    source.write_text(STUB + "".join(alias(name) for name in names))
    args = ["gcc", "-shared", "-fPIC", "-O1", "-s", f"-Wl,-soname,{path.name}", "-o", str(path), str(source)]
    if version:
        script.write_text(f"{version} {{ global: *; }};\n")
        args.append(f"-Wl,--version-script={script}")
    subprocess.run(args, check=True)
    source.unlink()
    script.unlink(missing_ok=True)


def main(site):
    lib, out = site / "torch/lib", site / "nvidia/cu13/lib"
    for gone in [lib / "libtorch_cuda_linalg.so", lib / "libcaffe2_nvrtc.so", *(site / "torch/bin").glob("protoc*")]:
        gone.unlink(missing_ok=True)
    for d in ("include", "test"):
        shutil.rmtree(site / "torch" / d, ignore_errors=True)
    libs = sorted(lib.glob("*.so*"))
    names, undefined, defined = set(), {}, set()
    for p in libs:
        names |= set(re.findall(r"NEEDED.*\[(lib(?:cu(?!da\.)|nv|nccl)[^\]]*)\]", readelf("-d", p)))
        u, d = symbols(p)
        undefined |= u
        defined |= d
    out.mkdir(parents=True, exist_ok=True)
    for soname in sorted(names):
        stem = soname.split(".")[0][3:].lower()
        version = "NVSHMEM" if stem == "nvshmem_host" else soname
        mine = sorted(n for n, v in undefined.items() if n not in defined and v.split(" ")[0] == version)
        bare = sorted(
            n
            for n, v in undefined.items()
            if n not in defined and not v and n.lower().startswith(stem.removesuffix("_host"))
        )
        stub(out / soname, mine + bare, version if mine else "")
    for p in libs:
        shrink(p)


main(pathlib.Path(sys.argv[1]))
