"""Wraps the Listener of a stream, so that its errors do not end the stream."""

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch.in_flight import Flight
from octavo.router.dispatch.stream import Broken, Listener, Stream
from octavo.router.internal_errors import Contained, InternalErrors
from octavo.router.jobs.generation import Model


class ContainedListener:
    """Forwards each call. A stream goes on after an error in any but `opened`: that one raises Broken, because a
    stream that its listener does not know gets no requests; the next attempt may succeed."""

    def __init__(self, listener: Listener, errors: InternalErrors) -> None:
        self._listener = listener
        self._errors = errors

    def opened(self, stream: Stream, model: Model) -> None:
        with self._contained(stream, "opened"):
            return self._listener.opened(stream, model)
        raise Broken("the router could not take the stream; the error is above")

    def credited(self, stream: Stream) -> None:
        with self._contained(stream, "credited"):
            self._listener.credited(stream)

    def landed(self, flight: Flight) -> None:
        with self._errors.contained("request %s: the end", flight.job.id):
            self._listener.landed(flight)

    def rejected(self, stream: Stream, flight: Flight, rejected: engine_pb2.Rejected) -> None:
        with self._contained(stream, "rejected"):
            self._listener.rejected(stream, flight, rejected)

    def draining(self, stream: Stream) -> None:
        with self._contained(stream, "draining"):
            self._listener.draining(stream)

    def lost(self, stream: Stream) -> None:
        with self._contained(stream, "lost"):
            self._listener.lost(stream)

    def _contained(self, stream: Stream, event: str) -> Contained:
        return self._errors.contained("group %s: the router's handling of %r", stream.address, event)
