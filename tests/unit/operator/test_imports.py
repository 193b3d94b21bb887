"""What an operator does not need, it does not import."""

import subprocess
import sys

_IMPORT = """
import sys
import octavo.operator.main, octavo.operator.kopf_handlers
print("kopf" in sys.modules, "kubernetes" in sys.modules)
"""


def test_an_operator_starts_without_the_official_client():
    done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
