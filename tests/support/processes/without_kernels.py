"""`octavo ...` as on a machine with a GPU whose installation lacks the kernels; with the imports of commands.py.

Two things differ from this machine: the driver's answer, that there is a GPU; and the folder of the libraries, an empty
one, which makes no difference where the CUDA kernels were not built anyway.
"""

import tempfile
from pathlib import Path

from support.processes import commands


def main(argv: list[str]) -> int:
    """`octavo ARGV`; all processes that it starts are forked from here, so they see the same."""
    from octavo.kernels.cuda import library
    from octavo.worker.devices import gpu

    with tempfile.TemporaryDirectory() as empty:
        library.LIBRARIES = Path(empty)
        gpu.missing = lambda: ""
        gpu.count = lambda: 1
        return commands.main(argv)
