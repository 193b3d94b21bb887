"""Wraps the StreamListener of a stream, so that its errors do not end the stream."""

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.dispatch.leader_stream import LeaderStream, StreamBroken, StreamListener
from octavo.router.internal_errors import Contained, InternalErrors
from octavo.router.jobs.generation import Model


class ContainedListener:
    """Forwards each call. A stream goes on after an error in any but `opened`: that one raises StreamBroken, because a
    stream that its listener does not know gets no requests; the next attempt may succeed."""

    def __init__(self, listener: StreamListener, errors: InternalErrors) -> None:
        self._listener = listener
        self._errors = errors

    def opened(self, stream: LeaderStream, model: Model) -> None:
        with self._contained(stream, "opened"):
            return self._listener.opened(stream, model)
        raise StreamBroken("the router could not take the stream; the error is above")

    def credited(self, stream: LeaderStream) -> None:
        with self._contained(stream, "credited"):
            self._listener.credited(stream)

    def on_finished(self, in_flight: InFlightJob) -> None:
        with self._errors.contained("request %s: the end", in_flight.job.id):
            self._listener.on_finished(in_flight)

    def rejected(self, stream: LeaderStream, in_flight: InFlightJob, rejected: engine_pb2.Rejected) -> None:
        with self._contained(stream, "rejected"):
            self._listener.rejected(stream, in_flight, rejected)

    def draining(self, stream: LeaderStream) -> None:
        with self._contained(stream, "draining"):
            self._listener.draining(stream)

    def lost(self, stream: LeaderStream) -> None:
        with self._contained(stream, "lost"):
            self._listener.lost(stream)

    def _contained(self, stream: LeaderStream, event: str) -> Contained:
        return self._errors.contained("group %s: the router's handling of %r", stream.address, event)
