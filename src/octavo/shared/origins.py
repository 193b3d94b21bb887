"""Origins of web pages that may call the API: `*` for all, or scheme, host and port as browsers send them."""

import re

ANY = "*"
ORIGIN = r"^(\*|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?)$"


def is_origin(text: str) -> bool:
    """`*`, or an origin in lower case, without a path."""
    return re.fullmatch(ORIGIN, text) is not None
