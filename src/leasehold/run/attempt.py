"""One attempt, from its grant to its outcome: `Attempt.run` is the list of its steps."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Literal

from leasehold.domain.errors import NO_RESULTS_FOLDER, InvalidTask
from leasehold.domain.job import Grant
from leasehold.domain.outcome import (
    AttemptTimedOut,
    Breached,
    DeadlinePassed,
    Failure,
    HandedBack,
    Outcome,
    Stopped,
    Success,
)
from leasehold.domain.policy import DEFAULT_POLICY, OnDrain, OnStall, Policy
from leasehold.domain.sensitive import hidden_outcome, hide, secrets_of
from leasehold.domain.signals import StopRequested
from leasehold.domain.states import Flag
from leasehold.run.budgets import has_limits
from leasehold.run.context import Context, SyncContext
from leasehold.run.exceptions import outcome_of
from leasehold.run.handler_state import LONGEST_PAUSE, SHORTEST_PAUSE, HandlerState
from leasehold.run.journal import Journal
from leasehold.run.questions import is_park
from leasehold.run.state import StreamWriter, current_run
from leasehold.tasks.definition import TaskDefinition

StopCause = Literal[
    "requested", "drain", "timeout", "deadline", "lost", "late", "unrenewed", "stalled", "exited", "dropped"
]

NOTHING = Success()


class Attempt(HandlerState):
    """One attempt of a job. The context sees the handler's side; the worker also sees the lease and the end.

    Four things can be over, each without the others:
    `completed`: the handler has settled the job itself, by `ctx.complete`; its code may still run.
    `ended_at`: the ending is decided, and went to the settler or was dropped. Nothing may stop the attempt any more.
    `left_behind`: the handler ignored its stop. The worker ends the attempt without it, and the handler runs on.
    `is_over` (`ExternalAttempt`): the execution outside the worker has ended too, so what it left can be deleted once
    the ending is stored; `ending_not_stored` says that it never will be.
    """

    started_at = 0.0
    """When the attempt began, on the monotonic clock; 0: the worker holds it, and it has not begun."""
    deadline_at: float | None = None
    """When the whole job must have ended, on the monotonic clock."""
    time_out_at: float | None = None
    """When the attempt has used up its time, or the job's deadline passes; set as the attempt begins."""
    time_out_cause: StopCause = "timeout"
    task: asyncio.Task[None] | None = None
    """The handler's task, set only while an async handler runs: the task refers to the attempt, and a busy worker
    rarely collects cycles."""
    flag: Flag | None = None
    cause: StopCause | None = None
    stop_began_at = 0.0
    ended_at = 0.0
    """When the ending went to the settler or was dropped, on the monotonic clock; 0: not yet."""
    ending_not_stored = False
    """The database did not take the ending: the lease was lost, or the worker ended first."""
    left_behind = False
    exit: BaseException | None = None
    """The SystemExit or KeyboardInterrupt that a task of the handler has raised."""
    policy = DEFAULT_POLICY
    """Settings stored with the job; most jobs have none."""
    stall_reported = 0.0
    """The last sign of life before the silence that was reported, on the monotonic clock."""
    on_error: Callable[[BaseException], None] | None = None
    """Called with the exception that the handler raised, for tracing."""

    def __init__(
        self,
        grant: Grant,
        definition: TaskDefinition,
        held_at: float,
        sent_at: float,
        journal: Journal | None = None,
        writer: StreamWriter | None = None,
        resources: Any = None,
    ) -> None:
        self.grant = grant
        self.definition = definition
        self.journal = journal
        self.writer = writer
        self.resources = resources
        self.held_at = held_at
        usable, self.renew_every = definition.lease_times(grant.lease_seconds)
        """Seconds between two renewals. A single call may have a shorter lease than its task."""
        if grant.policy is not None:
            self.policy = Policy.load(grant.policy)
            if self.policy.heartbeat is not None:
                self.renew_every = min(self.policy.heartbeat, grant.lease_seconds / 3)
        self.usable_until = sent_at + usable
        """Until when this worker surely has the lease, on the monotonic clock, counted from the claim's request."""
        self.renew_at = sent_at + self.renew_every
        """When the keeper renews the lease, on the monotonic clock."""

    # -- the steps -------------------------------------------------------------------------------------------------
    async def run(self, ended: Ended) -> None:
        """Run the attempt: an async handler on the loop, a plain one in its thread, by `run_here`."""
        definition = self.definition
        current_run.set(self)
        outcome: Outcome | None
        try:
            self.check()
            arguments = definition.decode_arguments(self.grant.args)
            if definition.context_parameter is not None:
                await self.load(arguments, definition.context_parameter)
            value = self.call(arguments)
            if definition.runs_on_loop:
                value = await value
            if self.journal is not None:
                self.journal.end_if_copy()
            success = self.judge(value)
            if success is not NOTHING and self.leaves_row(success.result):
                success = await self.file(success)
            outcome = success
        except BaseException as error:
            if self.journal is not None:
                self.journal.end_if_copy()
            if self.on_error is not None:
                self.on_error(error)
            outcome = self.without_secrets(self.judge_error(error))
        if self.steps is not None:
            await self.close()
        self.task = None
        ended(self, outcome)

    def check(self) -> None:
        """Raise StopRequested if the attempt must not begin: a stop was requested, the lease has run out, or no time is
        left. A worker that was frozen since the claim may have lost the lease to another."""
        now = self.started_at = time.monotonic()
        has_rules = (
            self.definition.has_rules or self.deadline_at is not None or self.policy is not DEFAULT_POLICY
        )
        if has_rules:
            self._limit(now, self.timeout)
        if now >= self.usable_until:
            self.stop("late")
        elif self.time_out_at is not None and now >= self.time_out_at:
            self.stop(self.time_out_cause)
        if self.must_stop:
            raise StopRequested
        if has_rules and self.wants_file and self.journal is not None and not self.journal.has_folder:
            # Refuse before the work is done, not after it. A worker whose own tasks need a folder does not even start.
            raise InvalidTask("result", "'file' needs a folder, and its worker has none", NO_RESULTS_FOLDER)

    async def load(self, arguments: dict[str, Any], context_parameter: str) -> None:
        """Make the context, and load its attributes for an async handler, which must not wait for the database there. A
        plain handler may wait, and mostly does not read them."""
        if not self.definition.runs_on_loop:
            arguments[context_parameter] = SyncContext(self)
            return
        arguments[context_parameter] = Context(self)
        if self.journal is None:
            return
        if has_limits(self.grant):
            # `ctx.left`
            await self.journal.call(self.open_steps().spending.load)
        if self.grant.attempt > 1:
            # `ctx.saved`
            await self.journal.call(self.open_steps().load_saved)

    def call(self, arguments: dict[str, Any]) -> Any:
        return self.definition.handler(**arguments)

    def judge(self, value: object) -> Success:
        """Return the success: what the handler returned, with its follow-ups."""
        if self.completed or (value is None and self.follow_ups is None and self.definition.may_return_none):
            return NOTHING
        return Success(self.encode_result(value), None, self.unstored())

    async def file(self, success: Success) -> Success:
        """Write the result outside of its row, complete and on the disk before the success is settled."""
        text = success.result or "null"
        on_loop = self.definition.runs_on_loop
        name = await self._file_on_loop(text) if on_loop else self.file_result(text)
        return replace(success, result=None, result_ref=name)

    async def _file_on_loop(self, text: str) -> str:
        """`file_result`, without a thread while it waits. The handler has ended: a stop only makes the next try the
        last one."""
        pause = SHORTEST_PAUSE
        while True:
            names: list[str | None] = []
            try:
                await self.needed_journal().call(lambda names=names: names.append(self.try_to_file(text)))
            except asyncio.CancelledError:
                if not names:
                    raise
            if names[0] is not None:
                return names[0]
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.0 if self.must_stop else pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def judge_error(self, error: BaseException) -> Outcome | None:
        """Return the outcome for an exception. None: the lease is lost, so nothing may be written."""
        if self.unkept is not None and self.may_write:
            return self.unkept
        if isinstance(error, asyncio.CancelledError) and self.definition.runs_on_loop:
            if self.cause is None:
                return Failure("CancelledError: the handler cancelled itself")
            return self.outcome_when_stopped()
        if isinstance(error, StopRequested) and self.cause is not None:
            return self.outcome_when_stopped()
        if self.cause == "exited":
            return self.outcome_when_stopped()
        if self.cause == "lost":
            return None
        if self.questions_box is not None and is_park(error):
            return self.questions_box.outcome
        return outcome_of(error, self.definition)

    def without_secrets(self, outcome: Outcome | None) -> Outcome | None:
        """Hide secrets in an error: what is stored of it is shown to all readers of the job."""
        if outcome is None or not self.policy.sensitive:
            return outcome
        return hidden_outcome(outcome, secrets_of(self.grant.args, self.policy.sensitive))

    def log_line(self, line: str, read_to: str | None = None) -> None:
        if self.policy.sensitive:
            line = hide(line, secrets_of(self.grant.args, self.policy.sensitive))
        super().log_line(line, read_to)

    async def close(self) -> None:
        """Write what the attempt's steps have kept and spent: the ending follows, and must not overtake it."""
        if self.steps is None or not self.steps.batch.is_pending:
            return
        if not self.definition.runs_on_loop:
            self.steps.batch.finish()
            return
        with contextlib.suppress(asyncio.CancelledError):  # it has ended; a stop comes too late
            await self.needed_journal().call(self.steps.batch.finish)

    # -- the lease and the end -----------------------------------------------------------------------------------------
    def renewed(self, sent_at: float) -> None:
        usable, _ = self.definition.lease_times(self.grant.lease_seconds)
        self.usable_until = sent_at + usable
        self.renew_at = sent_at + self.renew_every

    def stop(self, cause: StopCause) -> None:
        """Ask the handler to end. Any thread may call this for a plain handler; the loop must cancel an async one."""
        if self.cause is None:
            self.cause = cause
            self.stop_began_at = time.monotonic()
        self.request_stop()

    def wake_handler(self) -> None:
        """Cancel an async handler, on the loop, after `stop`. A handler that has yet to begin sees the stop itself."""
        if self.task is not None:
            self.task.cancel()

    def stop_timeout(self, stop_grace: float) -> float:
        """Return the seconds that the handler gets to obey a stop."""
        return stop_grace

    def outcome_when_left_behind(self) -> Outcome | None:
        """Return the outcome of an attempt whose handler ignored its stop: the job ends as requested."""
        return self.outcome_when_stopped()

    def exited(self, error: BaseException) -> None:
        """Stop the attempt, because a task of its handler has exited, even if the handler does not wait for it."""
        if self.ended_at or self.completed:
            return
        self.exit = error
        self.stop("exited")
        if (task := self.task) is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def outcome_when_stopped(self) -> Outcome | None:
        """Return the outcome of a stopped attempt. None: another worker has the lease, so nothing may be written."""
        match self.cause:
            case "lost":
                return None
            case "late":
                return HandedBack("its lease had run out before it could start")
            case "timeout":
                return AttemptTimedOut(f"the attempt took longer than {self._allowed():g} s")
            case "deadline":
                return DeadlinePassed("the job's deadline has passed")
            case "stalled":
                if self.on_stall == "pause":
                    return Stopped(f"stalled: {self.stall_text}", pause=True)
                return AttemptTimedOut(f"stalled: {self.stall_text}")
            case "drain":
                if self.on_drain == "pause":
                    return self._breached() or Stopped("Job was interrupted by user", pause=True)
                return HandedBack("its worker was stopped")
            case "exited":
                # As if the handler itself had raised it.
                return None if self.exit is None else outcome_of(self.exit, self.definition)
            case "unrenewed":
                return HandedBack("its lease could not be renewed")
            case _:
                return (self._breached() if self.flag is Flag.PAUSE else None) or Stopped()

    def over_budget(self) -> object:
        """Return the budget limit that the attempt has exceeded, as text or as an error. None: none."""
        return None if self.steps is None else self.steps.batch.over_budget()

    def _breached(self) -> Breached | None:
        """Return the failure of an attempt that is paused while it is over its budget, if its task fails for that."""
        over = self.over_budget()
        if over is None or self.policy.on_breach != "fail":
            return None
        return Breached(f"interrupted while {over}")

    @property
    def stall_text(self) -> str:
        return f"no progress, update or log for {self.stall_after or 0.0:g} s"

    # -- settings of its call, or else of its task -----------------------------------------------------------------
    @property
    def timeout(self) -> float | None:
        said = self.policy.timeout
        return self.definition.timeout if said is None else said or None

    @property
    def stall_after(self) -> float | None:
        said = self.policy.stall_after
        return self.definition.stall_after if said is None else said or None

    @property
    def on_stall(self) -> OnStall:
        return self.policy.on_stall or self.definition.settings.on_stall

    @property
    def may_write(self) -> bool:
        return self.cause != "lost"

    @property
    def wants_file(self) -> bool:
        return (self.policy.result or self.definition.settings.result) == "file"

    @property
    def on_drain(self) -> OnDrain:
        return self.policy.on_drain or self.definition.settings.on_drain

    def _limit(self, now: float, timeout: float | None) -> None:
        if timeout is not None:
            self.time_out_at = now + timeout
        if self.deadline_at is not None and (self.time_out_at is None or self.deadline_at < self.time_out_at):
            self.time_out_at, self.time_out_cause = self.deadline_at, "deadline"

    def _allowed(self) -> float:
        return self.time_out_at - self.started_at if self.time_out_at is not None else 0.0


Ended = Callable[[Attempt, Outcome | None], None]


def run_here(steps: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine in this thread, without a loop: the steps of a plain handler wait for nothing."""
    try:
        steps.send(None)
    except StopIteration:
        return
    raise RuntimeError("the run of a plain handler waited for a loop")
