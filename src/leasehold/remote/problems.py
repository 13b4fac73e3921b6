"""Turns problems (RFC 9457) from a server into our errors; a problem without one becomes a RemoteError."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import TypeAdapter, ValidationError

from leasehold.domain.capacity import Holder
from leasehold.domain.errors import (
    AtCapacity,
    DuplicateJob,
    GroupOnHold,
    IdempotencyKeyReused,
    InvalidAnswer,
    InvalidArguments,
    InvalidInput,
    InvalidState,
    JobError,
    JobNotFound,
    JobNotSucceeded,
    LeaseholdError,
    NotSerializable,
    RemoteError,
    ResultMissing,
    ScheduleNotFound,
    TenantNotFound,
    UnknownTask,
    WaitTimedOut,
    error_code,
)

ERRORS: dict[str, type[LeaseholdError]] = {
    error_code(kind.__name__): kind
    for kind in (
        *(JobNotFound, ScheduleNotFound, TenantNotFound, ResultMissing, IdempotencyKeyReused, UnknownTask),
        *(InvalidArguments, InvalidAnswer, NotSerializable, InvalidInput, DuplicateJob, InvalidState),
        *(JobNotSucceeded, JobError, GroupOnHold, AtCapacity, WaitTimedOut),
    )
}

_HOLDERS = TypeAdapter(tuple[Holder, ...])


def error_of(status: int, problem: Any) -> LeaseholdError:
    """Return the error for a response. `problem` is its body: one of ours, or whatever a proxy sent."""
    reported = problem if isinstance(problem, dict) else {}
    code, detail = (
        str(reported.get("code", "unknown")),
        str(reported.get("detail", "the server gave no detail")),
    )
    if code == "invalid-request":
        return _invalid_request(reported, detail)
    kind = ERRORS.get(code)
    facts = reported.get("facts", {})
    if kind is None or not isinstance(facts, dict):
        return RemoteError(status, code, detail)
    return _rebuilt(kind, detail, facts)


def _rebuilt(kind: type[LeaseholdError], detail: str, facts: dict[str, Any]) -> LeaseholdError:
    """Make the error again, with its facts as attributes; a fact that the server did not send is None."""
    error = kind.__new__(kind)
    error.args = (detail,)
    made_from = (inspect.signature(vars(one)["__init__"]) for one in kind.__mro__ if "__init__" in vars(one))
    names = {name for signature in made_from for name in signature.parameters}
    vars(error).update(dict.fromkeys(names - {"self", "message", "args", "kwargs"}) | facts)
    if isinstance(error, AtCapacity):
        error.holders = _holders(error.holders)
    return error


def _holders(reported: Any) -> tuple[Holder, ...]:
    try:
        return _HOLDERS.validate_python(reported)
    except ValidationError:
        return ()


def _invalid_request(reported: dict[str, Any], detail: str) -> InvalidInput:
    """Make the error of a request that the server's schema refused: the field is the end of the first pointer."""
    match reported.get("errors"):
        case [{"pointer": str(pointer), "detail": str(problem)}, *_]:
            return InvalidInput(pointer.rpartition("/")[2], problem, "see the API's schema, /openapi.json")
    return InvalidInput("request", detail, "")
