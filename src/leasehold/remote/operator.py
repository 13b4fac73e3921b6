"""The operator on a server: calls each verb by its HTTP line in the table; waits and bulk calls take several
requests."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from leasehold.domain.bulk import BulkReport, BulkRequest, BulkTally
from leasehold.domain.checks.payload import encode
from leasehold.domain.checks.texts import checked_name, checked_names
from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import InvalidInput, JobNotFound, JobNotSucceeded, WaitTimedOut
from leasehold.domain.groups import FiledResult, GroupStatus, StatusRequest
from leasehold.domain.job import Enqueued, Job
from leasehold.domain.records import TaskCard
from leasehold.domain.states import State
from leasehold.domain.stop import StopReport, StopRequest
from leasehold.domain.stream import Update
from leasehold.operations import jobs
from leasehold.operations.arguments import checked_job_id
from leasehold.operations.json_records import from_json
from leasehold.operations.verb import Param, Verb
from leasehold.remote.exchange import (
    LONGEST_WAIT,
    Exchange,
    Request,
    Response,
    enqueued_of,
    get,
    once,
    part,
    post,
    unexpected,
)
from leasehold.remote.transport import Following, Transport

P = ParamSpec("P")
R = TypeVar("R")

MOST_IN_BULK = 1000
"""Jobs of one bulk request: with more, a server or proxy could time out."""


class RemoteOperator:
    """Calls verbs on one server, for the jobs of one tenant."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def call(self, verb: Verb[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        request = request_of(verb, verb.checked(*args, **kwargs))
        found: R = self.transport.run(once(request, lambda response: read(verb.returns, response)))
        return found

    # -- one job ---------------------------------------------------------------------------------------------------
    def updates(self, job_id: str, since: int, timeout: float | None) -> Iterator[Update]:
        return self.transport.follow(self._following(job_id, since, timeout))

    def aupdates(self, job_id: str, since: int, timeout: float | None) -> AsyncIterator[Update]:
        return self.transport.afollow(self._following(job_id, since, timeout))

    def _following(self, job_id: str, since: int, timeout: float | None) -> Following:
        return Following(checked_job_id(job_id), since, timeout, self.transport.connections.timeout)

    def ended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        return self.transport.run(_ending(job_id, timeout))

    async def aended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        return await self.transport.arun(_ending(job_id, timeout))

    # -- many jobs -------------------------------------------------------------------------------------------------
    def bulk(self, request: BulkRequest) -> BulkReport:
        _refuse_actor(request.actor)
        return self.transport.run(_in_pieces(request))

    def stop(self, request: StopRequest) -> StopReport:
        return self.transport.run(_stopping(request))

    async def astop(self, request: StopRequest) -> StopReport:
        return await self.transport.arun(_stopping(request))

    def group_status(self, request: StatusRequest) -> GroupStatus:
        return self._readable(self.transport.run(_status(request)))

    async def agroup_status(self, request: StatusRequest) -> GroupStatus:
        return self._readable(await self.transport.arun(_status(request)))

    def _readable(self, status: GroupStatus) -> GroupStatus:
        """Replace each result that is a file by one that is read at its first use."""

        def reader(job_id: str) -> Callable[[], Any]:
            return lambda: json.loads(self.ended(job_id, 0)[1] or "null")

        results = (
            one if one.result_ref is None else FiledResult(one.id, one.task, one.result_ref, reader(one.id))
            for one in status.results
        )
        return replace(status, results=tuple(results))

    # -- tasks and schedules -----------------------------------------------------------------------------------------
    def task_cards(self) -> list[TaskCard]:
        return self.transport.run(once(get("/v1/tasks"), lambda response: read(list[TaskCard], response)))

    def run_schedule(self, name: str, actor: str | None) -> Enqueued:
        _refuse_actor(actor)
        return self.transport.run(once(post(f"/v1/schedules/{part(name)}/run"), enqueued_of))


# -- a verb as a request -----------------------------------------------------------------------------------------------
def request_of(verb: Verb[..., Any], given: Mapping[str, Any]) -> Request:
    """Make the request of a verb: names go into the path, other arguments into the query or the body."""
    if not verb.http:
        raise InvalidInput(verb.name, "cannot be called over HTTP", "call it where the database is")
    sent = {one.name: one for one in verb.params if not one.internal}
    _refuse_actor(*(given[one.name] for one in verb.params if one.internal and one.name == "actor"))
    in_path = [] if verb.target is None else [verb.target.name]
    path = re.sub(r"\{(\w+)[^}]*\}", lambda found: _part(found[1], in_path, given, sent), verb.path)
    for name in in_path:
        del sent[name]
    if verb.method == "GET":
        return get(path, **{one.public: _criterion(one, given[one.name]) for one in sent.values()})
    body = {one.public: _plain(one, given[one.name]) for one in sent.values()}
    kept = {name: value for name, value in body.items() if value is not None or name == "value"}
    if verb.method == "PUT":
        return Request("PUT", path, body=kept, repeat=True)
    return post(path, kept or None)


def _part(name: str, in_path: list[str], given: Mapping[str, Any], sent: Mapping[str, Param]) -> str:
    """Fill in one name of the path. The first one is the target, though the verb's parameter may have another name."""
    if name in sent and name not in in_path and in_path:
        in_path.append(name)
    return part(given[in_path[-1]])


def _criterion(one: Param, value: Any) -> Any:
    """Refuse an empty text: the server takes it for no filter, and would list everything, or the first page again."""
    if value == "":
        raise InvalidInput(one.public, "is empty", "give a text, or leave it out")
    return to_jsonable_python(value)


def _plain(one: Param, value: Any) -> Any:
    """Return a plain JSON value; pydantic converts models, times and other types it knows. Raises NotSerializable."""
    with contextlib.suppress(ValueError):  # `encode` reports the problem
        value = to_jsonable_python(value)
    encode(value, one.public)
    return value


def _refuse_actor(*actors: str | None) -> None:
    if any(actor is not None for actor in actors):
        raise InvalidInput("actor", "cannot be chosen over HTTP", "leave it out: it is the token's name")


def read(kind: Any, response: Response) -> Any:
    """Read a value of this type from a response."""
    if kind is bool:
        return bool(response.of("changed"))
    try:
        return None if kind is None or kind is type(None) else from_json(kind, response.data)
    except ValidationError as error:
        raise unexpected(response.status, str(error)) from error


# -- waits that are longer than one request ----------------------------------------------------------------------------
def _job(job_id: str) -> Request:
    return request_of(jobs.get, {"job_id": checked_job_id(job_id)})


def _ending(job_id: str, timeout: float | None) -> Exchange[tuple[Job, str | None]]:
    until = None if timeout is None else time.monotonic() + timeout
    path, text = f"{_job(job_id).path}/result", None
    try:
        while True:
            left = LONGEST_WAIT if until is None else until - time.monotonic()
            response = yield get(path, wait=max(0.0, min(left, LONGEST_WAIT)))
            if response.status == 200:
                text = json.dumps(response.of("result"))
                break
            if left <= 0:
                raise WaitTimedOut(job_id, timeout or 0.0, response.of("state"))
    except JobNotSucceeded:
        pass  # the job's record says how it ended
    return read(Job, (yield _job(job_id))), text


def _status(request: StatusRequest) -> Exchange[GroupStatus]:
    path = f"/v1/groups/{part(checked_name(request.group, 'group'))}"
    until = time.monotonic() + seconds(request.wait, "wait")
    named, partial = list(checked_names(request.tasks, "tasks") or ()), request.partial
    since, noted = request.since, request.noted
    while True:
        left = max(0.0, until - time.monotonic())
        response = yield get(
            path, wait=min(left, LONGEST_WAIT), since=since, tasks=named, partial=partial, noted=noted
        )
        status: GroupStatus = read(GroupStatus, response)
        if status.changed or not status.live or left <= LONGEST_WAIT:
            return status
        since, noted = status.version, status.noted if partial else None


def _stopping(request: StopRequest) -> Exchange[StopReport]:
    """Stop jobs. The server waits for a minute at most; after that, wait for each job that still runs."""
    _refuse_actor(request.actor)
    until = time.monotonic() + request.longest
    first = min(request.longest, LONGEST_WAIT)
    body = {
        **request.scope.as_dict(),
        "mode": request.mode,
        "wait": first,
        "dry_run": request.dry_run,
        "hold": request.hold,
    }
    if request.reason is not None:
        body["reason"] = request.reason
    report: StopReport = read(StopReport, (yield post("/v1/stop", body, wait=first)))
    running = list(report.still_running)
    if request.dry_run or request.mode == "immediate":
        return report
    while running and (left := until - time.monotonic()) > 0:
        try:
            response = yield get(_job(running[0]).path, wait=min(left, LONGEST_WAIT))
        except JobNotFound:
            running.pop(0)
        else:
            if read(Job, response).state is not State.RUNNING:
                running.pop(0)
    return replace(report, still_running=running)


def _in_pieces(request: BulkRequest) -> Exchange[BulkReport]:
    tally, cursor = BulkTally(request), request.cursor
    while True:
        part: BulkReport = read(BulkReport, (yield _piece(request, request.limit - tally.matched, cursor)))
        tally.add(part)
        cursor = part.next
        if cursor is None or tally.matched >= request.limit:
            return tally.report(cursor)


def _piece(request: BulkRequest, left: int, cursor: str | None) -> Request:
    """Make one request. Only a dry run may be repeated: a second report would not count what the first request did."""
    criteria = {name: getattr(request.filter, name) for name in ("queue", "task", "lane", "group", "tag")}
    for name, value in criteria.items():
        if value == "":
            raise InvalidInput(name, "is empty", "give a text, or leave it out")
    body = {
        "verb": request.verb,
        "state": [state.value for state in request.filter.states],
        **criteria,
        "everything": request.everything,
        "dry_run": request.dry_run,
        "limit": min(left, MOST_IN_BULK),
        "cursor": cursor,
        **to_jsonable_python(request.own),
    }
    kept = {name: value for name, value in body.items() if value is not None}
    return Request("POST", "/v1/jobs/bulk", body=kept, wait=LONGEST_WAIT, repeat=request.dry_run)
