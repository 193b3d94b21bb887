"""Read by every interpreter that starts with this folder in PYTHONPATH: a process and all that it starts.

OCTAVO_TEST_PATCH=MODULE:ARGUMENT calls `MODULE.install(ARGUMENT)` before anything of ours is imported.
"""

import importlib
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # tests/
name, _, argument = os.environ["OCTAVO_TEST_PATCH"].partition(":")
importlib.import_module(name).install(argument)
