"""kopf without the official client of Kubernetes.

kopf imports that wherever it is installed, to know its classes should a handler hand it such objects. None does here,
and the client is half a second of a CPU and 18 MiB at each start of an operator; login.py imports it when needed.
"""

import sys

_WITHOUT = "kubernetes"
_found = _WITHOUT in sys.modules
if not _found:
    sys.modules[_WITHOUT] = None  # type: ignore[assignment]  # to the import system: it is not installed
import kopf  # noqa: E402

if not _found:
    del sys.modules[_WITHOUT]

__all__ = ["kopf"]
