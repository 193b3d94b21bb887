"""Where the ranks of a pod are reached, by the address of its `--group`. PURE.

--group         rank i of the pod    rendezvous of a stage whose first pod it is
unix:/path      unix:/path.i         a file: /path.INCARNATION
host:port       host:port+100+i      host:port+99
"""

import glob

from octavo.shared.limits import FIRST_RANK_OFFSET, RENDEZVOUS_OFFSET

_INCARNATION = "[0-9a-f]" * 32


def rank_address(group: str, local_rank: int) -> str:
    """Raises ValueError when there is no such port."""
    if group.startswith("unix:"):
        return f"{group}.{local_rank}"
    return _beyond(group, FIRST_RANK_OFFSET + local_rank)


def rendezvous(group: str, incarnation: str) -> str:
    """A file:// or tcp:// URL. Each incarnation has a file of its own: an earlier one's would mislead it."""
    if group.startswith("unix:"):
        return f"file://{group.removeprefix('unix:')}.{incarnation}"
    return f"tcp://{_beyond(group, RENDEZVOUS_OFFSET)}"


def rendezvous_files(group: str) -> str | None:
    """A glob of the files that `rendezvous` has named for this address; None: it names a port."""
    return f"{glob.escape(group.removeprefix('unix:'))}.{_INCARNATION}" if group.startswith("unix:") else None


def _beyond(group: str, more: int) -> str:
    host, _, port = group.rpartition(":")
    if int(port) + more > 65535:
        raise ValueError(f"{group}: its ranks listen {more} ports further, and ports end at 65535; give a lower one")
    return f"{host}:{int(port) + more}"
