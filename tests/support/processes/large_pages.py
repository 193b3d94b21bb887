"""To be imported last by a process that others are forked from: puts what it has by then into pages of 2 MiB.

A fork copies an entry for each page, and the end of what was forked drops it: of 330 MiB in pages of 4 KiB that takes
29 ms of a CPU, of 2 MiB 9 ms. Who writes to such a page gets 4 KiB of it, as before. Where the kernel has no such pages
to give, or no call for it (before Linux 6.1), all stays as it is.
"""

import ctypes
from pathlib import Path

_MADV_COLLAPSE = 25


def _collapse() -> None:
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, access, _, _, inode, *name = line.split()
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            begin, end = (int(number, 16) for number in extent.split("-"))
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)


_collapse()
