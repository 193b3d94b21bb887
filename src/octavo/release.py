"""Which releases of routers and leaders work together: a release and the one before it. PURE.

Each end names its release and its number of the protocol (proto/v1/engine.proto) in the handshake. PROTOCOL grows by
one in a release that changes the meaning of what both ends read; that release also speaks the earlier form, to a peer
that names the earlier number. New fields and messages that an earlier release may ignore leave it as it is.
"""

from octavo import __version__

PROTOCOL = 1  # 0: a release that did not name it
MOST_APART = 1


def skew(theirs: str, release: str, protocol: int, ours: str) -> str:
    """Why the two do not work together; "" if they do. theirs, ours: such as "the group", "the router"."""
    if abs(protocol - PROTOCOL) <= MOST_APART:
        return ""
    return (
        f"{theirs} is of release {release or 'unknown'} (protocol {protocol}) and {ours} of release {__version__} "
        f"(protocol {PROTOCOL}): only protocols that differ by at most {MOST_APART} work together; set spec.restartAt "
        "to replace pods of an earlier release"
    )
