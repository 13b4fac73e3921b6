"""Exchanges with a server: requests, their responses, and the errors that a response reports.

No I/O: `transport.py` sends the requests, from threads or asyncio, so that every verb is written once.
"""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import islice
from typing import Any, Literal, Required, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from leasehold.domain.checks.payload import encode
from leasehold.domain.checks.times import Duration, checked_instant, seconds
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
    ResultMissing,
    RunningJob,
    ScheduleNotFound,
    TenantNotFound,
    UnknownTask,
    WaitTimedOut,
    error_code,
)
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Enqueued
from leasehold.errors import PartlyStored, RemoteError

T = TypeVar("T")

LONGEST_WAIT = 60.0
"""Seconds that one request may wait for a change: the server's limit."""


@frozen
class Request:
    method: Literal["GET", "POST", "PUT"]
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that are None are not sent."""
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    """Seconds that the server may take beyond the usual time-out."""
    repeat: bool = False
    """Whether the request may be sent twice: the transport sends it again after a lost connection."""

    @property
    def query(self) -> dict[str, Any]:
        return {name: value for name, value in self.params.items() if value is not None}

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()


@frozen
class Response:
    status: int
    data: Any

    def read(self, values: TypeAdapter[T]) -> T:
        try:
            return values.validate_python(self.data)
        except ValidationError as error:
            raise unexpected(self.status, str(error)) from error

    def of(self, name: str) -> Any:
        """Return one field of the JSON object."""
        if not isinstance(self.data, dict) or name not in self.data:
            raise unexpected(self.status, f"{name} is not in it")
        return self.data[name]


Exchange = Generator[Request, Response, T]
"""Yields requests, gets their responses, and returns the result."""


def get(path: str, wait: float = 0.0, **params: Any) -> Request:
    return Request("GET", path, params if not wait else {**params, "wait": wait}, wait=wait, repeat=True)


def post(path: str, body: Mapping[str, Any] | None = None, wait: float = 0.0) -> Request:
    return Request("POST", path, body=body, wait=wait)


def once(request: Request, read: Callable[[Response], T]) -> Exchange[T]:
    """An exchange of one request."""
    return read((yield request))


def part(name: str) -> str:
    """Quote a name as one part of a path."""
    return quote(name, safe="").replace(".", "%2E")


def parse_response(status: int, content: bytes) -> Response:
    """Parse a response. Raises the error that the server reported."""
    try:
        data = json.loads(content) if content else None
    except (ValueError, RecursionError):
        data = None
        if status < 400:
            raise unexpected(status, "it is no JSON") from None
    if status >= 400:
        raise error_of(status, data)
    if status >= 300 and status != 304:
        raise unexpected(status, "it is a redirect")
    return Response(status, data)


def unexpected(status: int, problem: str) -> RemoteError:
    return RemoteError(
        status, "unexpected-answer", f"the answer is not one of Leasehold's: {problem}; check the URL"
    )


# -- problems → our errors ---------------------------------------------------------------------------------------------

ERRORS: dict[str, type[LeaseholdError]] = {
    error_code(kind.__name__): kind
    for kind in (
        *(JobNotFound, ScheduleNotFound, TenantNotFound, ResultMissing, IdempotencyKeyReused, UnknownTask),
        *(InvalidArguments, InvalidAnswer, NotSerializable, InvalidInput, DuplicateJob, InvalidState),
        *(JobNotSucceeded, JobError, GroupOnHold, AtCapacity, WaitTimedOut),
    )
}

_HOLDERS = TypeAdapter(tuple[RunningJob, ...])


def error_of(status: int, problem: Any) -> LeaseholdError:
    """Return the error for a response. `problem` is its body: one of ours, or what a proxy sent."""
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


def _holders(reported: Any) -> tuple[RunningJob, ...]:
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


# -- calls of tasks ----------------------------------------------------------------------------------------------------

MOST_IN_REQUEST = 1000
"""Jobs of one request."""
LONGEST_KEY = 180
"""Characters; `enqueue_many` appends the number of the piece."""


class CallOptions(TypedDict, total=False):
    """Settings of one call; the task decides everything else."""

    delay: Duration
    at: datetime | None
    priority: int
    group: str | None
    tags: Iterable[str]
    unique: str | None


class JobCall(CallOptions, total=False):
    """One call of `enqueue_many`."""

    task: Required[str]
    args: Mapping[str, Any]


def enqueued_of(response: Response) -> Enqueued:
    return Enqueued(response.of("id"), response.of("created"))


def enqueue(
    task: str, args: Mapping[str, Any] | None, key: str | None, options: CallOptions
) -> Exchange[Enqueued]:
    """Enqueue one job. The key makes the request safe to repeat: the server recognises it and stores one job."""
    body = _body({**options, "task": task, "args": args or {}})
    return enqueued_of((yield _once("/v1/jobs", body, _checked_key(key))))


def enqueue_many(calls: Iterable[JobCall], key: str | None) -> Exchange[list[Enqueued]]:
    key, made = _checked_key(key), list[Enqueued]()
    for number, jobs in enumerate(_pieces(calls)):
        request = _once("/v1/jobs/batch", {"jobs": [_body(job) for job in jobs]}, f"{key}/{number}")
        try:
            response = yield request
            made += [enqueued_of(Response(response.status, one)) for one in response.of("jobs")]
        except LeaseholdError as error:
            if not made:
                raise
            ids = [one.id for one in made]
            raise PartlyStored(len(made), ids, f"{type(error).__name__}: {error}") from error
    return made


def plain_args(args: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return arguments as plain JSON values; pydantic converts models, times and other types it knows. Raises
    NotSerializable."""
    try:
        plain: dict[str, Any] = to_jsonable_python(dict(args))
    except ValueError:
        plain = dict(args)
    encode(plain, task)
    return plain


def _once(path: str, body: Mapping[str, Any], key: str) -> Request:
    return Request("POST", path, body=body, headers={"Idempotency-Key": key}, repeat=True)


def _body(job: JobCall) -> dict[str, Any]:
    body: dict[str, Any] = dict(job)
    if unknown := body.keys() - JobCall.__annotations__.keys() - CallOptions.__annotations__.keys():
        known = ", ".join(CallOptions.__annotations__)
        raise InvalidInput(min(unknown), "cannot be set over HTTP", f"a call takes {known}")
    body["args"] = plain_args(job.get("args") or {}, job["task"])
    if body.get("delay") is not None:
        body["delay"] = seconds(body["delay"], "delay")
    if body.get("at") is not None:
        body["at"] = checked_instant(body["at"], "at").isoformat()
    if body.get("tags") is not None:
        body["tags"] = list(body["tags"])
    return {name: value for name, value in body.items() if value is not None}


def _checked_key(key: str | None) -> str:
    if key is None:
        return secrets.token_hex(16)
    if not key or len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise InvalidInput(
            "idempotency_key", "cannot be sent", f"use ASCII text of at most {LONGEST_KEY} characters"
        )
    return key


def _pieces(calls: Iterable[JobCall]) -> Iterator[Sequence[JobCall]]:
    rest = iter(calls)
    while piece := list(islice(rest, MOST_IN_REQUEST)):
        yield piece
