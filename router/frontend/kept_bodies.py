"""Bodies of requests whose answers have not begun, kept so that they can be tokenised again for another model.

Within a bound: a body that finds no room is not kept, and its request fails should its model go.
"""

from dataclasses import dataclass, field

from octavo.router.text.bodies import BodyKind

MAX_KEPT_BYTES = 64 << 20


@dataclass(slots=True)
class KeptBody:
    """What a request was made of. body: None once it is not needed any more, or has found no room."""

    body_kind: BodyKind
    body: bytes | None
    holder: "KeptBodies | None" = field(default=None, repr=False)

    def release(self) -> None:
        """Harmless when it has been."""
        if self.holder is not None and self.body is not None:
            self.holder.size -= len(self.body)
        self.body = None


class KeptBodies:
    """size: bytes that are kept now, `most` at most."""

    def __init__(self, most: int = MAX_KEPT_BYTES) -> None:
        self.size = 0
        self._most = most

    def keep(self, one: KeptBody) -> None:
        """Until it is released."""
        assert one.body is not None, "a body is kept once"
        if self.size + len(one.body) <= self._most:
            self.size += len(one.body)
            one.holder = self
        else:
            one.release()
