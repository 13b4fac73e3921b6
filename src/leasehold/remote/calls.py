"""Enqueues over HTTP: calls of tasks by name, as requests."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Required

from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.instants import checked_instant
from leasehold.domain.checks.payload import encode
from leasehold.domain.frozen import frozen
from leasehold.errors import InvalidInput, LeaseholdError, PartlyStored
from leasehold.remote.exchange import Exchange, Request, Response

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


class NewJob(CallOptions, total=False):
    """One call of `enqueue_many`."""

    task: Required[str]
    args: Mapping[str, Any]


@frozen
class Stored:
    """A job that was created, or an existing one with the same unique key or idempotency key."""

    id: str
    created: bool

    @classmethod
    def of(cls, response: Response) -> Stored:
        return cls(response.of("id"), response.of("created"))


def enqueue(
    task: str, args: Mapping[str, Any] | None, key: str | None, options: CallOptions
) -> Exchange[Stored]:
    """Enqueue one job. The key makes the request safe to repeat: the server recognises it and stores one job."""
    body = _body({**options, "task": task, "args": args or {}})
    return Stored.of((yield _once("/v1/jobs", body, _checked_key(key))))


def enqueue_many(calls: Iterable[NewJob], key: str | None) -> Exchange[list[Stored]]:
    key, made = _checked_key(key), list[Stored]()
    for number, jobs in enumerate(_pieces(calls)):
        request = _once("/v1/jobs/batch", {"jobs": [_body(job) for job in jobs]}, f"{key}/{number}")
        try:
            response = yield request
            made += [Stored.of(Response(response.status, one)) for one in response.of("jobs")]
        except LeaseholdError as error:
            if not made:
                raise
            ids = [one.id for one in made]
            raise PartlyStored(len(made), ids, f"{type(error).__name__}: {error}") from error
    return made


def plain_args(args: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Arguments as plain JSON values; pydantic converts models, times and other types it knows. Raises
    NotSerializable."""
    try:
        plain: dict[str, Any] = to_jsonable_python(dict(args))
    except ValueError:
        plain = dict(args)
    encode(plain, task)
    return plain


def _once(path: str, body: Mapping[str, Any], key: str) -> Request:
    return Request("POST", path, body=body, headers={"Idempotency-Key": key}, repeat=True)


def _body(job: NewJob) -> dict[str, Any]:
    body: dict[str, Any] = dict(job)
    if unknown := body.keys() - NewJob.__annotations__.keys() - CallOptions.__annotations__.keys():
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


def _pieces(calls: Iterable[NewJob]) -> Iterator[Sequence[NewJob]]:
    rest = iter(calls)
    while piece := list(islice(rest, MOST_IN_REQUEST)):
        yield piece
