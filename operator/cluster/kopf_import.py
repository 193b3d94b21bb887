"""Import kopf without the official Kubernetes client.

kopf imports the client where it is installed, to recognise its classes in handlers. The operator's handlers use none,
and the import takes half a second of CPU and 18 MiB at each start; login.py imports the client when needed.
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
