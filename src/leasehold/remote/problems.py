"""Problems (RFC 9457) → our errors: the way back of the server's own table. What only a server can say is a
RemoteError."""

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

KINDS: dict[str, type[LeaseholdError]] = {
    error_code(kind.__name__): kind
    for kind in (
        *(JobNotFound, ScheduleNotFound, TenantNotFound, ResultMissing, IdempotencyKeyReused, UnknownTask),
        *(InvalidArguments, InvalidAnswer, NotSerializable, InvalidInput, DuplicateJob, InvalidState),
        *(JobNotSucceeded, JobError, GroupOnHold, AtCapacity, WaitTimedOut),
    )
}

_HOLDERS = TypeAdapter(tuple[Holder, ...])


def error_of(status: int, problem: Any) -> LeaseholdError:
    """`problem` is what came with the status: a problem of ours, or anything that stands in between has sent."""
    reported = problem if isinstance(problem, dict) else {}
    code, detail = (
        str(reported.get("code", "unknown")),
        str(reported.get("detail", "the server tells no more")),
    )
    if code == "invalid-request":
        return _invalid_request(reported, detail)
    kind = KINDS.get(code)
    facts = reported.get("facts", {})
    if kind is None or not isinstance(facts, dict):
        return RemoteError(status, code, detail)
    return _as_it_was(kind, detail, facts)


def _as_it_was(kind: type[LeaseholdError], detail: str, facts: dict[str, Any]) -> LeaseholdError:
    """With its facts as attributes; one that the server has not told of is None."""
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
    """The server's own schema has refused it: the field is at the end of the first pointer."""
    match reported.get("errors"):
        case [{"pointer": str(pointer), "detail": str(problem)}, *_]:
            return InvalidInput(pointer.rpartition("/")[2], problem, "see the API's schema, /openapi.json")
    return InvalidInput("request", detail, "")
