"""The wire to a leader: channel settings, and messages as protobuf wants them."""

from collections import deque
from collections.abc import Collection
from dataclasses import replace
from itertools import repeat

from octavo import __version__, release
from octavo.proto.v1 import engine_pb2
from octavo.router.jobs.generation import Job
from octavo.shared.grpc_options import MESSAGE_BYTES, OPTIONS
from octavo.shared.sampling_params import SamplingParams

# A prompt is nearly all of its message; the rest (stop ids, sampling) fits into the difference.
MAX_PROMPT_BYTES = MESSAGE_BYTES - (1 << 20)
BUNDLE_BYTES = 256 << 10
NO_TOKEN = 0xFFFFFFFF
_NEUTRAL = SamplingParams()

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *OPTIONS,
    # Each channel has connections of its own: a new one resolves and connects again, instead of sharing a dead address.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)


def heartbeat() -> engine_pb2.FromRouter:
    """An empty message: this end is alive."""
    return engine_pb2.FromRouter()


def submit(number: int, job: Job, features: Collection[str] = ()) -> engine_pb2.FromRouter:
    """features: of the group, which leaves the model's own defaults out that it cannot serve. `generated` stays empty:
    engines would go on after it, but no request is continued elsewhere yet."""
    sampling = job.sampling
    if left_out := [name for name in job.optional if name not in features]:
        sampling = replace(sampling, **{name: getattr(_NEUTRAL, name) for name in left_out})
    message = engine_pb2.Submit(
        number=number,
        prompt=job.prompt,
        sampling=sampling.to_proto(),
        limits=engine_pb2.Limits(max_tokens=job.max_tokens, stop_ids=job.stop_ids, ignore_eos=job.ignore_eos),
        priority=job.priority,
        salt=job.salt,
        grammar=job.grammar,
    )
    return engine_pb2.FromRouter(submit=message)


def cancel(number: int) -> engine_pb2.FromRouter:
    return engine_pb2.FromRouter(cancel=engine_pb2.Cancel(number=number))


def hello(service_uid: str, router: str) -> engine_pb2.FromRouter:
    return engine_pb2.FromRouter(
        hello=engine_pb2.Hello(service_uid=service_uid, router=router, protocol=release.PROTOCOL, release=__version__)
    )


def bundle(outbox: deque[engine_pb2.FromRouter]) -> engine_pb2.FromRouter:
    """Take the first message and the next ones that fit beside it: a write costs more than its bytes."""
    first = outbox.popleft()
    size = _size(first)
    while outbox and (size := size + _size(outbox[0])) <= BUNDLE_BYTES:
        first.more.append(outbox.popleft())
    return first


def _size(message: engine_pb2.FromRouter) -> int:
    """Bytes of what may be large in it."""
    submit = message.submit
    return len(submit.prompt) + submit.sampling.ByteSize()


Row = tuple[int, int, int, int, engine_pb2.Scores | None]


def rows(output: engine_pb2.StepOutput) -> list[Row]:
    """(number, id, finish, cached, scores) of each row, in order. Raises ValueError when the arrays do not agree."""
    numbers = memoryview(output.numbers).cast("I")
    ids = memoryview(output.ids).cast("I")
    finishes = output.finishes
    count = len(finishes)
    cached = memoryview(output.cached).cast("I") if output.cached else bytes(count)
    scores = _scores(output, count) if output.scores else repeat(None, count)
    return list(zip(numbers, ids, finishes, cached, scores, strict=True))


def _scores(output: engine_pb2.StepOutput, count: int) -> list[engine_pb2.Scores | None]:
    """One entry a row."""
    scores: list[engine_pb2.Scores | None] = [None] * count
    for one in output.scores:
        if one.row >= count:
            raise ValueError(f"scores of row {one.row}, of {count} rows")
        scores[one.row] = one
    return scores


def first_rows_first(rows: list[Row], fresh: set[int]) -> list[Row]:
    """Rows of requests in `fresh` before all others; these requests leave `fresh`. One request's rows keep their order.

    Each row costs a write to a client: behind a full batch of them a first token would wait for milliseconds.
    """
    begun = fresh.intersection([row[0] for row in rows])
    if not begun:
        return rows
    fresh -= begun
    return [row for row in rows if row[0] in begun] + [row for row in rows if row[0] not in begun]
