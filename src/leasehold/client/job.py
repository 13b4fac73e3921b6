"""A job in the user's hands: its facts as last read, the verbs on it, and the questions that jobs ask."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from leasehold.domain import job as domain
from leasehold.domain.budgets import BudgetLine, Spending
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidInput, JobNotSucceeded, UnreadableResult
from leasehold.domain.questions import OpenQuestion, Question
from leasehold.domain.records import AttemptRecord, Explanation, HistoryEntry, Relative, StepRecord
from leasehold.domain.states import Flag, State
from leasehold.domain.stream import LogTail, Progress, Update
from leasehold.operations import budgets, jobs, questions
from leasehold.operations.local import Operator
from leasehold.tasks.definition import TaskDefinition
from leasehold.threads import aio

R = TypeVar("R")
FindTask = Callable[[str], TaskDefinition | None]


class Job(Generic[R]):
    """One job. Its attributes are those of the last read; `refresh()` and every verb read it again. A job that was just
    enqueued is read when you use its first attribute, which blocks: in async code call `await job.arefresh()` first."""

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
        """False: a job with this unique key existed already, and this is its handle."""
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
        """The job's whole record, for Leasehold's own surfaces and tests."""
        if self._row is None:
            self._row = self._operator.call(jobs.get, self.id)
        return self._row

    @property
    def state(self) -> State:
        """The state at the last read."""
        return self.__row__.state

    @property
    def task(self) -> str:
        """The name of the job's task."""
        return self.__row__.task

    @property
    def queue(self) -> str:
        """The queue that the job is in."""
        return self.__row__.queue

    @property
    def attempt(self) -> int:
        """How many attempts have started."""
        return self.__row__.attempt

    @property
    def error(self) -> str | None:
        """The last error: the message in the first line, then the traceback. None once the job has succeeded;
        `attempts()` keeps the errors of earlier attempts."""
        return self.__row__.error

    @property
    def result_ref(self) -> str | None:
        """The name under which a result is stored that is not in its row: that of a file, or `database:…`. `result()`
        reads it."""
        return self.__row__.result_ref

    @property
    def reason(self) -> str | None:
        """Why the job is in its state, if a reason was given."""
        return self.__row__.reason

    @property
    def available_at(self) -> datetime:
        """When the job is due, or was."""
        return self.__row__.available_at

    @property
    def updated_at(self) -> datetime:
        """When the state last changed, by the database's clock."""
        return self.__row__.updated_at

    @property
    def worker(self) -> str | None:
        """The worker that runs the job. None: the job does not run, or its execution has no worker at the moment."""
        return self.__row__.worker

    @property
    def lease_expires_at(self) -> datetime | None:
        """When the worker's lease ends, by the database's clock; the worker renews it while the job runs."""
        return self.__row__.lease_expires_at

    @property
    def stop_requested(self) -> Flag | None:
        """The stop that was requested and has not happened yet: `finish`, `pause` or `cancel`."""
        return self.__row__.stop_requested

    @property
    def args(self) -> dict[str, Any]:
        """The arguments."""
        found: dict[str, Any] = json.loads(self.__row__.args)
        return found

    def explain(self) -> Explanation:
        """Explain why the job is not running: each cause, in order, with what would change it."""
        holds = self._operator.call(jobs.explain, self.id)
        return Explanation(holds)

    aexplain = aio(explain)

    def history(self) -> list[HistoryEntry]:
        """List the job's moves between states, oldest first: what, when, by whom."""
        return self._operator.call(jobs.history, self.id)

    ahistory = aio(history)

    def attempts(self) -> list[AttemptRecord]:
        """List the job's attempts, oldest first: when, by which worker, how each ended, and its error."""
        return self._operator.call(jobs.attempts, self.id)

    aattempts = aio(attempts)

    def steps(self) -> list[StepRecord]:
        """List what the job's steps returned, in the order in which they were stored."""
        return self._operator.call(jobs.steps, self.id)

    asteps = aio(steps)

    def relatives(self) -> list[Relative]:
        """List the jobs that this job waits for, the jobs that wait for it, the job that it follows, and its own
        follow-ups."""
        return self._operator.call(jobs.relatives, self.id)

    arelatives = aio(relatives)

    def progress(self) -> Progress | None:
        """Return the progress that the job last reported. None: it has reported none yet."""
        return self._operator.call(jobs.progress, self.id)

    aprogress = aio(progress)

    def log(self, attempt: int | None = None) -> LogTail:
        """Return the last log lines of an attempt; by default, of the newest attempt that has any."""
        return self._operator.call(jobs.read_log, self.id, attempt or 0)

    alog = aio(log)

    # -- watch -----------------------------------------------------------------------------------------------------
    def watch(self, since: int = 0, timeout: Duration | None = None) -> Iterator[Update]:
        """Yield the job's updates and its changes of state, in order, until it has succeeded, failed, timed out or been
        cancelled. Continue after an interruption with `watch(since=update.seq)`: no update is missed, and no stored one
        comes twice. Raises WaitTimedOut if the job has not ended within `timeout`."""
        return self._operator.updates(self.id, since, _seconds(timeout))

    async def awatch(self, since: int = 0, timeout: Duration | None = None) -> AsyncIterator[Update]:
        async for update in self._operator.aupdates(self.id, since, _seconds(timeout)):
            yield update

    def refresh(self) -> Self:
        """Read the job again."""
        self._row = self._operator.call(jobs.get, self.id)
        return self

    arefresh = aio(refresh)

    # -- result ----------------------------------------------------------------------------------------------------
    def result(self, timeout: float | None = None) -> R:
        """Wait for the job to succeed, and return its result. Raises JobNotSucceeded if it ends otherwise, WaitTimedOut
        if it has not ended within `timeout` seconds, ResultMissing if the result is in a file that cannot be read. The
        wait goes on while the job is paused or waiting."""
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
        """Cancel the job: at once or, if it runs, as soon as its worker gets the request."""
        return self._set(self._operator.call(jobs.cancel, self.id, reason=reason, actor=actor))

    acancel = aio(cancel)

    def pause(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Pause the job, so that it can be resumed: at once or, if it runs, as soon as its worker gets the request."""
        return self._set(self._operator.call(jobs.pause, self.id, reason=reason, actor=actor))

    apause = aio(pause)

    def interrupt(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Pause the job if it is running, else cancel it. The database decides by the job's state at that moment, so
        there is no need to read the state first."""
        return self._set(self._operator.call(jobs.interrupt, self.id, reason=reason, actor=actor))

    ainterrupt = aio(interrupt)

    def abandon(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Give up on an execution that no worker watches or will find again, because its machine is gone. The attempt
        counts as failed. If the execution is still alive, the next attempt runs beside it."""
        return self._set(self._operator.call(jobs.abandon, self.id, reason=reason, actor=actor))

    aabandon = aio(abandon)

    def resume(
        self, *, args: Mapping[str, Any] | None = None, fresh: bool = False, actor: str | None = None
    ) -> Self:
        """Resume a paused, failed or timed-out job, with other arguments if given. Stored steps do not run again,
        unless `fresh=True` deletes them and the checkpoint."""
        given = None if args is None else dict(args)
        return self._set(self._operator.call(jobs.resume, self.id, args=given, fresh=fresh, actor=actor))

    aresume = aio(resume)

    def skip(self, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Leave a failed job as it is, and let its lane go on."""
        return self._set(self._operator.call(jobs.skip, self.id, reason=reason, actor=actor))

    askip = aio(skip)

    def snooze(self, until: datetime, reason: str | None = None, *, actor: str | None = None) -> Self:
        """Set when a pending, queued or paused job is due; a time in the past means now. It keeps its place in its
        lane, which waits for it."""
        return self._set(self._operator.call(jobs.snooze, self.id, until=until, reason=reason, actor=actor))

    asnooze = aio(snooze)

    def release(self, *, actor: str | None = None) -> Self:
        """Release a job that was enqueued on hold."""
        return self._set(self._operator.call(jobs.release, self.id, actor=actor))

    arelease = aio(release)

    def retry(self, *, actor: str | None = None) -> Job[R]:
        """Enqueue a new job like this one; this job stays unchanged."""
        row = self._operator.call(jobs.retry, self.id, actor=actor)
        return Job(row.id, self._operator, self._find_task, row, created=True)

    aretry = aio(retry)

    # -- questions and budgets -------------------------------------------------------------------------------------
    def questions(self) -> list[Question]:
        """List all questions of the job. Secret answers are left out."""
        return self._operator.call(questions.questions, self.id)

    aquestions = aio(questions)

    def answer(self, key: str, value: Any, *, actor: str | None = None) -> Self:
        """Answer a question with a JSON value. A waiting job goes on; a paused one keeps the answer for its resume.
        Raises InvalidAnswer if the value does not fit the question."""
        return self._set(self._operator.call(questions.answer, self.id, key, value, actor=actor))

    aanswer = aio(answer)

    def budget(self) -> list[BudgetLine]:
        """List what the job and its group may spend and have spent, by unit."""
        return self._operator.call(budgets.budget, self.id)

    abudget = aio(budget)

    def spending(self) -> list[Spending]:
        """List every amount that the job spent, with the key and the lease under which it was spent."""
        return self._operator.call(budgets.spending, self.id)

    aspending = aio(spending)

    def top_up(self, /, *, actor: str | None = None, **amounts: int) -> list[BudgetLine]:
        """Raise the job's limits: `job.top_up(tokens=50_000)`. A job that went over its budget can then be resumed."""
        return self._operator.call(budgets.top_up, self.id, amounts, actor=actor)

    atop_up = aio(top_up)

    def _set(self, row: domain.Job) -> Self:
        self._row = row
        return self


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds(timeout, "timeout")


# -- `app.questions` ---------------------------------------------------------------------------------------------------


class Questions:
    """The questions of all jobs."""

    def __init__(self, operator: Operator, find_task: FindTask) -> None:
        self._operator = operator
        self._find_task = find_task

    def list(
        self,
        *,
        group: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 100,
    ) -> list[OpenQuestion]:
        """List open questions, oldest first."""
        return self._operator.call(questions.open_questions, group=group, queue=queue, task=task, limit=limit)

    alist = aio(list)

    def answer(self, job_id: str, key: str, value: Any, *, actor: str | None = None) -> Job[Any]:
        """Answer a question with a JSON value. A waiting job goes on; a paused one keeps the answer. Raises
        InvalidAnswer if the value does not fit the question, which then stays open."""
        row = self._operator.call(questions.answer, job_id, key, value, actor=actor)
        return Job(row.id, self._operator, self._find_task, row)

    aanswer = aio(answer)
