"""Which rows of the device's request state are free: one is, once no step under way names it."""

from octavo.worker.messages.request import Request


class Slots:
    def __init__(self, count: int) -> None:
        self.free = list(range(count - 1, -1, -1))
        self.returned = 0  # newest step whose result has come
        self._leaving: list[Request] = []  # hold a slot that steps under way still name

    def leave(self, request: Request) -> bool:
        """Free the slot if no step under way names it: True. Else a later result does."""
        if request.last_step > self.returned:
            self._leaving.append(request)
            return False
        self.free.append(request.slot)
        request.slot = -1
        return True

    def left(self) -> list[Request]:
        """Requests whose slots have become free by a result."""
        leaving, self._leaving = self._leaving, []
        return [request for request in leaving if self.leave(request)]
