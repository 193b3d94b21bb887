"""PyTorch is imported without the shapes that only its compiler asks for, and has them when they are wanted."""

import subprocess
import sys

_LOAD = """
import sys
from octavo.worker.rank import pytorch
pytorch.load()
import torch
assert float((torch.ones(2, 3) @ torch.ones(3, 5)).sum()) == 30.0
print("torch._decomp" in sys.modules)
print(pytorch.sys.modules[pytorch.SHAPES].meta_index_Tensor.__name__, "torch._decomp" in sys.modules)
pytorch.load()
"""


def test_its_shapes_are_imported_when_something_of_them_is_wanted_and_not_before():
    done = subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "meta_index_Tensor True"]
