"""A job in the user's hands: its facts as last read, and the verbs on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from leasehold.client.aio import aio
from leasehold.domain import job as domain
from leasehold.domain.budgets import BudgetLine, Spending
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.errors import InvalidInput, JobNotSucceeded, UnreadableResult
from leasehold.domain.explanation import Explanation
from leasehold.domain.job import Question
from leasehold.domain.records import AttemptRecord, HistoryEntry, Relative, StepRecord
from leasehold.domain.states import Flag, State
from leasehold.domain.stream import LogTail, Progress, Update
from leasehold.operations import budgets, jobs, questions
from leasehold.operations.local import Operator
from leasehold.tasks.definition import TaskDefinition

R = TypeVar("R")
FindTask = Callable[[str], TaskDefinition | None]


class Job(Generic[R]):
    """One job. Attributes are as of the last read; `refresh()` reads again, and every verb does. A job that was just
    enqueued has not been read: its first attribute reads it, so in async code `await job.arefresh()` first."""

    def __init__(
        self,
        job_id: str,
        operator: Operator,
        find_task: FindTask,
        row: domain.Job | None = None,
        *,
        created: bool = False,
    ) -> None:
        self.id = job_id
        self.created = created
        """False when enqueue met a job that was there already."""
        self._operator = operator
        self._find_task = find_task
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
    def __row__(self) -> domain.Job:
        """Everything that is known of the job; for our own surfaces and tests."""
        if self._row is None:
            self._row = self._operator.call(jobs.get, self.id)
        return self._row

    @property
    def state(self) -> State:
        """Its state at the last read."""
        return self.__row__.state

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.__row__.task

    @property
    def queue(self) -> str:
        """The queue it waits in."""
        return self.__row__.queue

    @property
    def attempt(self) -> int:
        """How many runs have started."""
        return self.__row__.attempt

    @property
    def error(self) -> str | None:
        """What went wrong last, while it has not succeeded: the message in the first line, then where. None once it has
        succeeded; `attempts()` keeps what went wrong before."""
        return self.__row__.error

    @property
    def result_ref(self) -> str | None:
        """The name of the file that its result is in, if it is in one; `result()` reads it."""
        return self.__row__.result_ref

    @property
    def reason(self) -> str | None:
        """Why it is in its state, where there is a reason."""
        return self.__row__.reason

    @property
    def available_at(self) -> datetime:
        """When it is due, or was."""
        return self.__row__.available_at

    @property
    def updated_at(self) -> datetime:
        """When its state last changed, by the database's clock."""
        return self.__row__.updated_at

    @property
    def worker(self) -> str | None:
        """The worker that runs it. None: it does not run, or its execution has no worker at the moment."""
        return self.__row__.worker

    @property
    def lease_expires_at(self) -> datetime | None:
        """Until when that worker holds it, by the database's clock; renewed while it runs."""
        return self.__row__.lease_expires_at

    @property
    def stop_requested(self) -> Flag | None:
        """What its run was asked to do and has not done yet: `finish`, `pause` or `cancel`."""
        return self.__row__.stop_requested

    @property
    def args(self) -> dict[str, Any]:
        """Its arguments."""
        found: dict[str, Any] = json.loads(self.__row__.args)
        return found

    def explain(self) -> Explanation:
        """Why it is not running: what holds it, in order, each with what would change that."""
        holds = self._operator.call(jobs.explain, self.id)
        return Explanation(holds)

    aexplain = aio(explain)

    def history(self) -> list[HistoryEntry]:
        """Its moves between states, oldest first: what, when, by whom."""
        return self._operator.call(jobs.history, self.id)

    ahistory = aio(history)

    def attempts(self) -> list[AttemptRecord]:
        """Its runs, oldest first: when, by which worker, how each ended and what went wrong in it."""
        return self._operator.call(jobs.attempts, self.id)

    aattempts = aio(attempts)

    def steps(self) -> list[StepRecord]:
        """What its steps have returned, in the order in which they were stored."""
        return self._operator.call(jobs.steps, self.id)

    asteps = aio(steps)

    def relatives(self) -> list[Relative]:
        """What it waits for, who waits for it, whose follow-up it is, which follow-ups it has."""
        return self._operator.call(jobs.relatives, self.id)

    arelatives = aio(relatives)

    def progress(self) -> Progress | None:
        """How far it is, as it last reported. None: it has reported nothing yet."""
        return self._operator.call(jobs.progress, self.id)

    aprogress = aio(progress)

    def log(self, attempt: int | None = None) -> LogTail:
        """The last lines that an attempt has logged; of the newest attempt that has any, unless one is named."""
        return self._operator.call(jobs.read_log, self.id, attempt or 0)

    alog = aio(log)

    # -- watch -----------------------------------------------------------------------------------------------------
    def watch(self, since: int = 0, timeout: Duration | None = None) -> Iterator[Update]:
        """What the job reports, in order, and its state as it changes, until it has succeeded, failed, timed out or
        been cancelled. Go on after an interruption with `watch(since=event.seq)`: nothing is missed and no stored
        event comes twice. Raises WaitTimedOut when the job has not come to rest within `timeout`."""
        return self._operator.updates(self.id, since, _seconds(timeout))

    async def awatch(self, since: int = 0, timeout: Duration | None = None) -> AsyncIterator[Update]:
        async for update in self._operator.aupdates(self.id, since, _seconds(timeout)):
            yield update

    def refresh(self) -> Self:
        """Read it again."""
        self._row = self._operator.call(jobs.get, self.id)
        return self

    arefresh = aio(refresh)

    # -- result ----------------------------------------------------------------------------------------------------
    def result(self, timeout: float | None = None) -> R:
        """Wait for the job to succeed, and return its result. Raises JobNotSucceeded when it ends otherwise,
        WaitTimedOut when it has not ended in `timeout` seconds, ResultMissing when the file that it is in cannot be
        read. A paused or waiting job is waited for."""
        return self._decode(*self._operator.ended(self.id, timeout))

    async def aresult(self, timeout: float | None = None) -> R:
        return self._decode(*await self._operator.aended(self.id, timeout))

    def _decode(self, row: domain.Job, text: str | None) -> R:
        self._row = row
        if row.state is not State.SUCCEEDED:
            raise JobNotSucceeded(self.id, row.state.value, row.error or row.reason)
        task = self._find_task(row.task)
        try:
            found: R = json.loads(text or "null") if task is None else task.decode_result(text)
        except InvalidInput as error:
            raise UnreadableResult(self.id, row.task, error.problem) from error
        return found

    # -- verbs -----------------------------------------------------------------------------------------------------
    def cancel(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Cancel it: at once, or as soon as the worker that runs it gets the request."""
        return self._now(self._operator.call(jobs.cancel, self.id, reason=reason, actor=actor))

    acancel = aio(cancel)

    def pause(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Stop it so that it can be resumed; a running job is asked to stop."""
        return self._now(self._operator.call(jobs.pause, self.id, reason=reason, actor=actor))

    apause = aio(pause)

    def interrupt(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Pause it if it is running, else cancel it. Decided on the job as it stands: no need to look first,
        and nothing that happens meanwhile makes it the wrong choice."""
        return self._now(self._operator.call(jobs.interrupt, self.id, reason=reason, actor=actor))

    ainterrupt = aio(interrupt)

    def abandon(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Give up on its execution, which no worker watches or will find again: its machine is gone. It counts as a
        failure. If the execution does live, the next attempt runs beside it."""
        return self._now(self._operator.call(jobs.abandon, self.id, reason=reason, actor=actor))

    aabandon = aio(abandon)

    def resume(
        self, *, args: Mapping[str, Any] | None = None, fresh: bool = False, actor: str | None = None
    ) -> Self:
        """Resume a paused, failed or timed-out job, with other arguments if given. Its stored steps are not run
        again, unless `fresh=True` forgets them and the checkpoint."""
        given = None if args is None else dict(args)
        return self._now(self._operator.call(jobs.resume, self.id, args=given, fresh=fresh, actor=actor))

    aresume = aio(resume)

    def skip(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Leave a failed job as it is, and let its lane go on."""
        return self._now(self._operator.call(jobs.skip, self.id, reason=reason, actor=actor))

    askip = aio(skip)

    def snooze(self, until: datetime, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Set when a pending, queued or paused job is due; a time in the past means now. It keeps its place in its
        lane, which waits for it."""
        return self._now(self._operator.call(jobs.snooze, self.id, until=until, reason=reason, actor=actor))

    asnooze = aio(snooze)

    def release(self, *, actor: str | None = None) -> Self:
        """Lift the hold that it was enqueued with."""
        return self._now(self._operator.call(jobs.release, self.id, actor=actor))

    arelease = aio(release)

    def retry(self, *, actor: str | None = None) -> Job[R]:
        """Enqueue a new job like this one, which stays as it is."""
        row = self._operator.call(jobs.retry, self.id, actor=actor)
        return Job(row.id, self._operator, self._find_task, row, created=True)

    aretry = aio(retry)

    # -- questions and budgets -------------------------------------------------------------------------------------
    def questions(self) -> list[Question]:
        """All it has asked. Secret answers are left out."""
        return self._operator.call(questions.questions, self.id)

    aquestions = aio(questions)

    def answer(self, key: str, value: Any, *, actor: str | None = None) -> Self:
        """Answer a question with a JSON value. A waiting job goes on; a paused one keeps the answer for its resume.
        Raises InvalidAnswer when the value does not fit what was asked."""
        return self._now(self._operator.call(questions.answer, self.id, key, value, actor=actor))

    aanswer = aio(answer)

    def budget(self) -> list[BudgetLine]:
        """What it and its group may spend, and have spent, by unit."""
        return self._operator.call(budgets.budget, self.id)

    abudget = aio(budget)

    def spending(self) -> list[Spending]:
        """Its ledger: every amount, with its key and the lease it was spent under."""
        return self._operator.call(budgets.spending, self.id)

    aspending = aio(spending)

    def top_up(self, /, *, actor: str | None = None, **amounts: int) -> list[BudgetLine]:
        """Raise its limits: `job.top_up(tokens=50_000)`. A job that went over its budget can be resumed then."""
        return self._operator.call(budgets.top_up, self.id, amounts, actor=actor)

    atop_up = aio(top_up)

    def _now(self, row: domain.Job) -> Self:
        self._row = row
        return self


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds(timeout, "timeout")
