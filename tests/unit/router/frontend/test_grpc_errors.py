"""Each refusal and failure has one gRPC status, and its trailing metadata says what HTTP's error object says."""

import grpc
import pytest

from octavo.router.frontend.grpc.grpc_errors import STATUSES, metadata, status
from octavo.router.jobs import refusals
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.fields import invalid

CODES = grpc.StatusCode
TABLE = [
    (invalid("top_p", "no"), CODES.INVALID_ARGUMENT),
    (refusals.too_large(5, 4), CODES.INVALID_ARGUMENT),
    (RequestError(401, "authentication_error", "invalid_api_key", "no key"), CODES.UNAUTHENTICATED),
    (refusals.unknown_model("x", "m"), CODES.NOT_FOUND),
    (RequestError(408, "invalid_request_error", "body_too_slow", "slow"), CODES.DEADLINE_EXCEEDED),
    (RequestError(413, "invalid_request_error", "body_too_large", "large"), CODES.RESOURCE_EXHAUSTED),
    (refusals.queue_full("full", 2.0), CODES.RESOURCE_EXHAUSTED),
    (RequestError(499, "invalid_request_error", "cancelled", "gone"), CODES.CANCELLED),
    (refusals.engine_failed(), CODES.INTERNAL),
    (refusals.poison(2), CODES.INTERNAL),
    (refusals.cut(5), CODES.UNAVAILABLE),
    (refusals.no_capacity(1.0, 1, 1.0), CODES.UNAVAILABLE),
    (refusals.draining(), CODES.UNAVAILABLE),
    (refusals.deadline(1.0), CODES.DEADLINE_EXCEEDED),
    (RequestError(504, "timeout_error", "deadline_exceeded", "late"), CODES.DEADLINE_EXCEEDED),
]


@pytest.mark.parametrize(("error", "expected"), TABLE, ids=lambda value: getattr(value, "code", None))
def test_an_error_has_its_status(error: RequestError, expected: grpc.StatusCode) -> None:
    assert status(error) == expected


def test_the_table_has_each_status_that_is_in_use() -> None:
    assert {error.status for error, _ in TABLE} | {403} == set(STATUSES)


def test_metadata_says_type_code_and_field() -> None:
    trailing = dict(metadata(invalid("messages[3].role", "no")))
    assert trailing == {
        "octavo-error-type": "invalid_request_error",
        "octavo-error-code": "invalid_value",
        "octavo-error-field": "messages[3].role",
    }


def test_when_to_come_again_is_said_to_people_and_to_clients_that_retry() -> None:
    trailing = dict(metadata(refusals.queue_full("full", 1.2)))
    assert (trailing["retry-after"], trailing["grpc-retry-pushback-ms"]) == ("2", "2000")
    assert dict(metadata(refusals.poison(2)))["grpc-retry-pushback-ms"] == "-1"
    assert "grpc-retry-pushback-ms" not in dict(metadata(refusals.engine_failed()))


def test_metadata_holds_printable_ascii_whatever_a_field_is_called() -> None:
    assert dict(metadata(invalid("naïve\n", "no")))["octavo-error-field"] == "na?ve?"
