"""The errors with which dispatch refuses or ends a request, as the client gets them."""

from collections.abc import Sequence

from octavo.router.jobs.generation import ModelChanged, RequestError

SERVER = "server_error"
INVALID = "invalid_request_error"
OVERLOADED = "overloaded_error"
TIMEOUT = "timeout_error"


def queue_full(message: str, retry_after: float) -> RequestError:
    return RequestError(429, "rate_limit_error", "queue_full", message, retry_after)


def no_capacity(waited_s: float, groups: int, retry_after: float) -> RequestError:
    what = f"{groups} groups of the model serve, and none had room" if groups else "no group of the model is ready"
    message = f"waited {waited_s:.1f} s: {what}; try again later"
    return RequestError(503, OVERLOADED, "no_capacity", message, retry_after)


def deadline(retry_after: float) -> RequestError:
    message = "the request's deadline passed before a group had room for it; allow more time, or try again later"
    return RequestError(504, TIMEOUT, "deadline_exceeded", message, retry_after)


def timed_out() -> RequestError:
    message = "the answer was not whole within the request's timeout; allow more time, or ask for less"
    return RequestError(504, TIMEOUT, "deadline_exceeded", message, final=True)


def draining() -> RequestError:
    return RequestError(503, OVERLOADED, "draining", "this router is shutting down; send the request again", 1.0)


def keys_unavailable() -> RequestError:
    message = (
        "requests need an API key, and the router knows no valid one now: the file or Secret of its keys is missing or "
        "unusable, and its administrator must repair it; try again later"
    )
    return RequestError(503, OVERLOADED, "api_keys_unavailable", message, 10.0)


def model_changed() -> ModelChanged:
    message = "the service changed to another model while the request waited; send the request again"
    return ModelChanged(503, OVERLOADED, "model_changed", message, 1.0)


def context_exceeded(needed: int, context_length: int) -> RequestError:
    message = (
        f"the prompt and max_tokens need {needed} tokens, and the context of the groups that serve now holds "
        f"{context_length}: shorten the prompt or lower max_tokens"
    )
    return RequestError(400, INVALID, "context_length_exceeded", message)


def too_large(prompt_bytes: int, limit: int) -> RequestError:
    message = f"the prompt takes {prompt_bytes} bytes as token ids, and {limit} can be sent; shorten it"
    return RequestError(400, INVALID, "prompt_too_large", message, field="prompt")


def unsupported_field(field: str) -> RequestError:
    message = f"{field} is not supported by the device that this model runs on: remove it"
    return RequestError(400, INVALID, "unsupported_field", message, field=field)


def rejected(field: str, message: str) -> RequestError:
    return RequestError(400, INVALID, "invalid_value", message, field=field or None)


def cut(produced: int) -> RequestError:
    message = f"the group was lost after {produced} tokens; the answer is incomplete, send the request again"
    return RequestError(502, SERVER, "stream_cut", message)


def poison(incarnations: int) -> RequestError:
    message = (
        f"{incarnations} groups were lost while this request ran on them; it may be the cause and is not tried again"
    )
    return RequestError(500, SERVER, "engine_lost_twice", message, final=True)


def worn_out(attempts: int) -> RequestError:
    message = f"{attempts} attempts on the model's groups failed; try again later"
    return RequestError(503, OVERLOADED, "retries_exhausted", message, 1.0)


def engine_failed() -> RequestError:
    return RequestError(
        500, SERVER, "engine_failed", "the engine could not go on with this request; see the worker's log"
    )


def broken_reader() -> RequestError:
    return RequestError(500, SERVER, "internal_error", "the router could not pass the answer on; see the router's log")


def failed() -> RequestError:
    return RequestError(500, SERVER, "internal_error", "the router failed in serving the request; see the router's log")


def broken_helper() -> RequestError:
    return RequestError(500, SERVER, "internal_error", "the request could not be tokenised; see the router's log")


def helper_lost() -> RequestError:
    message = "two processes that tokenised the request were lost or held up; send the request again"
    return RequestError(503, OVERLOADED, "tokeniser_lost", message, 1.0)


def unknown_model(name: str, served: Sequence[str]) -> RequestError:
    """served: names of the models that are."""
    shown = ", ".join(map(repr, served)) or "none yet"
    message = f"the model {name[:128]!r} does not exist; this service serves {shown}"
    return RequestError(404, INVALID, "model_not_found", message, field="model")
