"""A job on a server: its facts as last read, and the verbs on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any

from leasehold.domain.budgets import checked_amounts
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.ids import checked_id
from leasehold.domain.checks.payload import encode
from leasehold.errors import InvalidInput, JobNotFound, JobNotSucceeded, WaitTimedOut
from leasehold.remote import decode
from leasehold.remote.calls import plain_args
from leasehold.remote.exchange import LONGEST_WAIT, Answer, Ask, Talk, get, given, once, part, post
from leasehold.remote.stream import Following
from leasehold.remote.transport import Line
from leasehold.remote.values import HistoryEntry, JobRow, Question
from leasehold.types import (
    AttemptRecord,
    BudgetLine,
    Explanation,
    LogTail,
    Progress,
    Relative,
    State,
    StepRecord,
    Update,
)


class Job:
    """One job. Attributes are as of the last read; `refresh()` reads again, and every verb does. A job that was just
    enqueued has not been read: its first attribute asks the server, so in async code `await job.arefresh()` first."""

    def __init__(self, job_id: str, line: Line, row: JobRow | None = None, *, created: bool = False) -> None:
        self.id = job_id
        self.created = created
        """False when enqueue met a job that was there already."""
        self._line = line
        self._row = row

    def __repr__(self) -> str:
        state = f" {self._row.task} {self._row.state}" if self._row is not None else ""
        return f"<Job {self.id}{state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- facts -----------------------------------------------------------------------------------------------------
    @property
    def state(self) -> State:
        """Its state at the last read."""
        return self._known().state

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._known().task

    @property
    def queue(self) -> str:
        """The queue it waits in."""
        return self._known().queue

    @property
    def attempt(self) -> int:
        """How many runs have started."""
        return self._known().attempt

    @property
    def error(self) -> str | None:
        """What went wrong last, while it has not succeeded."""
        return self._known().error

    @property
    def reason(self) -> str | None:
        """Why it is in its state, where there is a reason."""
        return self._known().reason

    @property
    def available_at(self) -> datetime:
        """When it is due, or was."""
        return self._known().available_at

    @property
    def updated_at(self) -> datetime:
        """When its state last changed, by the database's clock."""
        return self._known().updated_at

    @property
    def worker(self) -> str | None:
        """The worker that runs it. None: it does not run, or its execution has no worker at the moment."""
        return self._known().worker

    @property
    def lease_expires_at(self) -> datetime | None:
        """Until when that worker holds it, by the database's clock; renewed while it runs."""
        return self._known().lease_expires_at

    @property
    def stop_requested(self) -> str | None:
        """What its run was asked to do and has not done yet: `finish`, `pause` or `cancel`."""
        return self._known().stop_requested

    @property
    def args(self) -> dict[str, Any]:
        """Sensitive ones are hidden."""
        return dict(self._known().args)

    def explain(self) -> Explanation:
        """Why it is not running: what holds it, in order, each with what would change that."""
        return self._line.run(once(get(self._path("explain")), decode.explanation))

    async def aexplain(self) -> Explanation:
        return await self._line.arun(once(get(self._path("explain")), decode.explanation))

    def history(self) -> list[HistoryEntry]:
        """Its moves between states, oldest first: what, when, by whom."""
        return self._line.run(once(get(self._path("history")), decode.history))

    async def ahistory(self) -> list[HistoryEntry]:
        return await self._line.arun(once(get(self._path("history")), decode.history))

    def attempts(self) -> list[AttemptRecord]:
        """Its runs, oldest first: when, by which worker, how each ended and what went wrong in it."""
        return self._line.run(once(get(self._path("attempts")), decode.attempts))

    async def aattempts(self) -> list[AttemptRecord]:
        return await self._line.arun(once(get(self._path("attempts")), decode.attempts))

    def steps(self) -> list[StepRecord]:
        """What its steps have returned, in the order in which they were stored."""
        return self._line.run(once(get(self._path("steps")), decode.steps))

    async def asteps(self) -> list[StepRecord]:
        return await self._line.arun(once(get(self._path("steps")), decode.steps))

    def relatives(self) -> list[Relative]:
        """What it waits for, who waits for it, whose follow-up it is, which follow-ups it has."""
        return self._line.run(once(get(self._path("relatives")), decode.relatives))

    async def arelatives(self) -> list[Relative]:
        return await self._line.arun(once(get(self._path("relatives")), decode.relatives))

    def progress(self) -> Progress | None:
        """How far it is, as it last reported. None: it has reported nothing yet."""
        return self._line.run(self._reading()).progress

    async def aprogress(self) -> Progress | None:
        return (await self._line.arun(self._reading())).progress

    def log(self, attempt: int | None = None) -> LogTail:
        """The last lines that an attempt has logged; of the newest attempt that has any, unless one is named."""
        return self._line.run(once(get(self._path("log"), attempt=attempt), decode.log))

    async def alog(self, attempt: int | None = None) -> LogTail:
        return await self._line.arun(once(get(self._path("log"), attempt=attempt), decode.log))

    # -- watch -----------------------------------------------------------------------------------------------------
    def watch(self, since: int = 0, timeout: Duration | None = None) -> Iterator[Update]:
        """What the job reports, in order, and its state as it changes, until it has succeeded, failed, timed out or
        been cancelled. A lost connection is made again, and nothing is missed or told twice. Go on after an
        interruption of your own with `watch(since=event.seq)`. Raises WaitTimedOut when the job has not come to rest
        within `timeout`."""
        return self._line.follow(self._following(since, timeout))

    async def awatch(self, since: int = 0, timeout: Duration | None = None) -> AsyncIterator[Update]:
        async for event in self._line.afollow(self._following(since, timeout)):
            yield event

    def refresh(self) -> Job:
        """Read it again."""
        self._line.run(self._reading())
        return self

    async def arefresh(self) -> Job:
        await self._line.arun(self._reading())
        return self

    # -- result ----------------------------------------------------------------------------------------------------
    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job to succeed, and return its result, as plain JSON. Raises JobNotSucceeded when it
        ends otherwise, WaitTimedOut when it has not ended in `timeout` seconds, ResultMissing when the file that it
        is in cannot be read. A paused or waiting job is waited for."""
        return self._line.run(self._resulting(timeout))

    async def aresult(self, timeout: float | None = None) -> Any:
        return await self._line.arun(self._resulting(timeout))

    # -- verbs -----------------------------------------------------------------------------------------------------
    def cancel(self, reason: str | None = None) -> Job:
        """Cancel it: at once, or as soon as the worker that runs it gets the request. Its history names the
        token that asked."""
        return self._line.run(self._steering("cancel", given(reason=reason)))

    def pause(self, reason: str | None = None) -> Job:
        """Stop it so that it can be resumed; a running job is asked to stop."""
        return self._line.run(self._steering("pause", given(reason=reason)))

    def interrupt(self, reason: str | None = None) -> Job:
        """Pause it if it is running, else cancel it. Decided on the job as it stands."""
        return self._line.run(self._steering("interrupt", given(reason=reason)))

    def abandon(self, reason: str | None = None) -> Job:
        """Give up on its execution, which no worker watches or will find again: its machine is gone. It counts as a
        failure. If the execution does live, the next attempt runs beside it."""
        return self._line.run(self._steering("abandon", given(reason=reason)))

    def resume(self, *, args: Mapping[str, Any] | None = None, fresh: bool = False) -> Job:
        """Resume a paused, failed or timed-out job, with other arguments if given. Its stored steps are not run
        again, unless `fresh=True` forgets them and the checkpoint."""
        return self._line.run(self._steering("resume", _resume(args, fresh)))

    def skip(self, reason: str | None = None) -> Job:
        """Leave a failed job as it is, and let its lane go on."""
        return self._line.run(self._steering("skip", given(reason=reason)))

    def release(self) -> Job:
        """Lift the hold that it was enqueued with."""
        return self._line.run(self._steering("release"))

    def retry(self) -> Job:
        """Enqueue a new job like this one, which stays as it is."""
        return self._line.run(once(post(self._path("retry")), self._retried))

    async def acancel(self, reason: str | None = None) -> Job:
        return await self._line.arun(self._steering("cancel", given(reason=reason)))

    async def apause(self, reason: str | None = None) -> Job:
        return await self._line.arun(self._steering("pause", given(reason=reason)))

    async def ainterrupt(self, reason: str | None = None) -> Job:
        return await self._line.arun(self._steering("interrupt", given(reason=reason)))

    async def aabandon(self, reason: str | None = None) -> Job:
        return await self._line.arun(self._steering("abandon", given(reason=reason)))

    async def aresume(self, *, args: Mapping[str, Any] | None = None, fresh: bool = False) -> Job:
        return await self._line.arun(self._steering("resume", _resume(args, fresh)))

    async def askip(self, reason: str | None = None) -> Job:
        return await self._line.arun(self._steering("skip", given(reason=reason)))

    async def arelease(self) -> Job:
        return await self._line.arun(self._steering("release"))

    async def aretry(self) -> Job:
        return await self._line.arun(once(post(self._path("retry")), self._retried))

    # -- questions and budgets -------------------------------------------------------------------------------------
    def questions(self) -> list[Question]:
        """All it has asked. Secret answers are left out."""
        return self._line.run(once(get(self._path("questions")), decode.questions))

    def answer(self, key: str, value: Any) -> Job:
        """Answer a question with a JSON value. A waiting job goes on; a paused one keeps the answer for its resume.
        Raises InvalidAnswer when the value does not fit what was asked."""
        return self._line.run(once(answering(self.id, key, value), self._notify_after_stop))

    def budget(self) -> list[BudgetLine]:
        """What it and its group may spend, and have spent, by unit."""
        return self._line.run(once(get(self._path("budget")), decode.budget))

    def top_up(self, /, **amounts: int) -> list[BudgetLine]:
        """Raise its limits: `job.top_up(tokens=50_000)`. A job that went over its budget can be resumed then."""
        return self._line.run(once(self._topping_up(amounts), decode.budget))

    async def aquestions(self) -> list[Question]:
        return await self._line.arun(once(get(self._path("questions")), decode.questions))

    async def aanswer(self, key: str, value: Any) -> Job:
        return await self._line.arun(once(answering(self.id, key, value), self._notify_after_stop))

    async def abudget(self) -> list[BudgetLine]:
        return await self._line.arun(once(get(self._path("budget")), decode.budget))

    async def atop_up(self, /, **amounts: int) -> list[BudgetLine]:
        return await self._line.arun(once(self._topping_up(amounts), decode.budget))

    # -- talks -----------------------------------------------------------------------------------------------------
    def _known(self) -> JobRow:
        return self._line.run(self._reading()) if self._row is None else self._row

    def _path(self, verb: str = "") -> str:
        return job_path(self.id, verb)

    def _reading(self) -> Talk[JobRow]:
        row = self._row = decode.job((yield get(self._path())))
        return row

    def _steering(self, verb: str, body: Mapping[str, Any] | None = None) -> Talk[Job]:
        return once(post(self._path(verb), body), self._notify_after_stop)

    def _notify_after_stop(self, answer: Answer) -> Job:
        self._row = decode.job(answer)
        return self

    def _topping_up(self, amounts: Mapping[str, int]) -> Ask:
        return post(self._path("budget/top-up"), {"amounts": checked_amounts(amounts, "top_up")})

    def _retried(self, answer: Answer) -> Job:
        row = decode.job(answer)
        return Job(row.id, self._line, row, created=True)

    def _resulting(self, timeout: float | None) -> Talk[Any]:
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = LONGEST_WAIT if until is None else until - time.monotonic()
                answer = yield get(self._path("result"), wait=max(0.0, min(left, LONGEST_WAIT)))
                if answer.status == 200:
                    break
                if left <= 0:
                    raise WaitTimedOut(self.id, timeout or 0.0, answer.of("state"))
        except JobNotSucceeded:
            yield from self._reading()
            raise
        yield from self._reading()
        return answer.of("result")

    def _following(self, since: int, timeout: Duration | None) -> Following:
        longest = None if timeout is None else seconds(timeout, "timeout")
        return Following(self.id, since, longest, self._line.connections.timeout)


def job_path(job_id: str, verb: str = "") -> str:
    """A text that is no id is the id of no job: there is nothing to ask."""
    try:
        path = f"/v1/jobs/{checked_id(job_id)}"
    except InvalidInput:
        raise JobNotFound(str(job_id), "a job's id is a UUID, as enqueue returned it") from None
    return f"{path}/{verb}" if verb else path


def answering(job_id: str, key: str, value: Any) -> Ask:
    encode(value, "answer")
    return post(job_path(job_id, f"questions/{part(key)}/answer"), {"value": value})


def _resume(args: Mapping[str, Any] | None, fresh: bool) -> dict[str, Any]:
    return given(args=None if args is None else plain_args(args, "args"), fresh=fresh)
