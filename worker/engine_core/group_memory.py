"""One order at a time to all ranks, to give their memory back or to have it again, until each has answered. PURE.

serve asks --> no step under way --> the order goes to every rank --> all have answered --> the answer for serve
                                              ^----- the opposite, when one of them could not -----'
"""

from octavo.shared.failure_reasons import FailureReason
from octavo.worker.errors import Fault
from octavo.worker.messages.memory import GROUP, MemoryState, Sleep, Wake

_ORDER_S = 120.0
_BYTES_PER_S = 0.25e9  # that ranks at work at once, on one disk or at one host's pages, surely move together


def order_seconds(model_bytes: int) -> float:
    """How long ranks may be at work on an order: to pin the weights in the host's memory, or to read and check them
    again. After that they are stuck."""
    return _ORDER_S + model_bytes / _BYTES_PER_S


class GroupMemory:
    """asleep: whether the ranks have given their memory back."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._asked: Sleep | Wake | None = None  # and not sent
        self._sent: Sleep | Wake | None = None  # and not answered by all
        self._slept = Sleep(keep_kv=True)  # the last order to sleep
        self._answers: list[MemoryState] = []
        self._error = ""  # why the order is being undone
        self.asleep = False

    @property
    def holds_steps(self) -> bool:
        """No step with rows may be issued, but where `lets_requests_end`."""
        return self.asleep or self._asked is not None or self._sent is not None

    @property
    def lets_requests_end(self) -> bool:
        """An order to sleep waits for requests that came before it, and every rank is awake."""
        return isinstance(self._asked, Sleep) and not self.asleep and not self._error

    @property
    def awaits_ranks(self) -> bool:
        """Nor one without: ranks are at work on an order."""
        return self._sent is not None

    @property
    def awaits_steps(self) -> bool:
        """An order is to be sent once no step is under way."""
        return self._asked is not None

    def ask(self, order: Sleep | Wake) -> None:
        """serve asks once it has the answer to what it asked before."""
        assert self._asked is None and self._sent is None, "one order at a time"
        self._asked = order

    def send(self) -> Sleep | Wake:
        """What goes to every rank now: no step is under way."""
        order = self._asked
        assert order is not None, "awaits_steps says so"
        self._sent, self._asked = order, None
        if isinstance(order, Sleep):
            self._slept = order
        return order

    def answered(self, state: MemoryState) -> MemoryState | None:
        """A rank's answer; the group's, once all have answered. Raises Fault when an order can neither be followed nor
        undone."""
        self._answers.append(state)
        if len(self._answers) < self._ranks:
            return None
        answers, self._answers = self._answers, []
        order, self._sent = self._sent, None
        failed = [answer for answer in answers if answer.error]
        if failed and self._error:
            text = f"{self._error}; nor does rank {failed[0].rank} go on as it was: {failed[0].error}"
            raise Fault(FailureReason.RANK_FAILED, text)
        if failed:
            self._error = f"rank {failed[0].rank}: {failed[0].error}"
            self._asked = Wake() if isinstance(order, Sleep) else self._slept
            return None
        self.asleep = isinstance(order, Sleep)
        error, self._error = self._error, ""
        moved = 0 if error else sum(answer.moved_bytes for answer in answers)
        return MemoryState(GROUP, self.asleep, moved, error)
