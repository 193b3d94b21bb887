"""Messages between a stream's thread and the rank's: bounded, in order, and it can break."""

from collections import deque
from threading import Condition
from typing import Generic, TypeVar

from octavo.worker.errors import PeerLost

Item = TypeVar("Item")


class BoundedQueue(Generic[Item]):
    """Every call raises PeerLost once it is broken; what was put before is still got.

    It opens when its stream is there; what is put before then waits in it.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: deque[Item] = deque()
        self._changed = Condition()
        self._open = False
        self._lost: str | None = None

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def opened(self) -> None:
        """Waits until it is open."""
        with self._changed:
            self._changed.wait_for(lambda: self._open or self._lost is not None)
            if self._lost is not None:
                raise PeerLost(self._lost)

    def put(self, item: Item) -> None:
        """Waits while `room` items are not yet got."""
        with self._changed:
            self._changed.wait_for(lambda: self._lost is not None or len(self._items) < self._room)
            if self._lost is not None:
                raise PeerLost(self._lost)
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> Item:
        """Waits for the next item."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._lost is not None)
            if not self._items:
                raise PeerLost(self._lost)
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def break_(self, why: str) -> None:
        """The first cause counts."""
        with self._changed:
            self._lost = self._lost or why
            self._changed.notify_all()
