"""Errors of the router itself: each is logged and counted, and reaches no request or stream that is not at fault.

    with errors.contained("request %s", id, then=end_the_request):
        ...

Code that goes on after an error uses such a block; nothing else catches unexpected errors.
"""

import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType

log = logging.getLogger(__name__)


class InternalErrors:
    """count: since the process started. contained(what, *names, then=None): a block, `Contained`."""

    __slots__ = ("contained", "count")

    def __init__(self) -> None:
        self.count = 0
        self.contained = partial(Contained, self)  # and no method: half of what entering such a block costs

    def note(self, error: Exception, what: str, *names: object) -> None:
        """what, names: a logging format and its arguments, the subject of "... failed"."""
        self.count += 1
        log.error(f"{what} failed", *names, exc_info=error)


class Contained:
    """A block whose error ends the block and nothing else; `then` is called after one. Cancellation passes through it.

    what, names: as of `InternalErrors.note`.
    """

    __slots__ = ("_errors", "_names", "_then", "_what")

    def __init__(
        self, errors: InternalErrors, what: str, *names: object, then: Callable[[], object] | None = None
    ) -> None:
        self._errors = errors
        self._what = what
        self._names = names
        self._then = then

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self._errors.note(error, self._what, *self._names)
        if self._then is not None:
            self._then()
        return True
