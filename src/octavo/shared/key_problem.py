"""What is wrong with a router's API keys, as its page /readyz says it and the operator reads it.

{"status": "ok", "groups": {...}, "keys": {"valid": true, "problem": "unusable", "message": "line 2 is not a key"}}
"""

from enum import StrEnum


class KeyProblem(StrEnum):
    """MISSING: there is no file of keys. UNUSABLE: the file holds no key, or lines that are not keys."""

    MISSING = "missing"
    UNUSABLE = "unusable"
