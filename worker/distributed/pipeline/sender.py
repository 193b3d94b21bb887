"""The end of a link that dials: until the next rank has admitted us once; its stream is not replaced after that.

Steps may be lost with a stream, so a new one would go on with a hole.
"""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Thread

import grpc

from octavo.worker.config import Config
from octavo.worker.distributed.pipeline import wire
from octavo.worker.distributed.pipeline.bounded_queue import BoundedQueue
from octavo.worker.distributed.pipeline.receiver import ADMITTED
from octavo.worker.errors import PeerLost
from octavo.worker.tls import REDIAL, towards

# No keepalive: a stopped peer is for its supervisor to find, which can say so.
_OPTIONS = (("grpc.max_send_message_length", wire.LARGEST), *REDIAL)
# Not there yet; a rank of the earlier incarnation; or we were held up, and our first word came too late.
_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.CANCELLED)
_AGAIN_S = 0.2

logger = logging.getLogger(__name__)


class LinkSender:
    """What is in `passage` goes, in order, once the next rank has admitted us; it opens then."""

    def __init__(
        self, address: str, config: Config, introduction: bytes, queue: BoundedQueue[bytes], lost: Callable[[str], None]
    ) -> None:
        """lost: called when the stream has ended, or is refused for good."""
        self._address, self._introduction = address, introduction
        self._queue, self._lost = queue, lost
        channel = _channel(address, config)
        self._method: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(f"/{wire.SERVICE}/Activations")
        Thread(target=self._run, daemon=True, name="link-sender").start()

    def _run(self) -> None:
        while True:
            admitted: Future[bool] = Future()
            call = self._method.future(self._messages(admitted), wait_for_ready=True)
            admitted.set_result(ADMITTED in (call.initial_metadata() or ()))  # waits for it, or for the end
            if admitted.result():
                self._queue.open()
            call.exception()  # waits for the end
            why = f"{self._address}: {call.code().name}: {call.details()}"
            if admitted.result() or call.code() not in _AGAIN:
                return self._lost(why)
            logger.warning("the next stage does not take us yet: %s", why)
            time.sleep(_AGAIN_S)

    def _messages(self, admitted: "Future[bool]") -> Iterator[bytes]:
        yield self._introduction
        try:
            while admitted.result():
                yield self._queue.get()
        except PeerLost:  # and the stream ends
            return


def _channel(address: str, config: Config) -> grpc.Channel:
    credentials, named = towards(address, config)
    if credentials is None:
        return grpc.insecure_channel(address, options=_OPTIONS)
    return grpc.secure_channel(address, credentials, options=(*_OPTIONS, *named))
