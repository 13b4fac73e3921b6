"""An attempt whose handler runs in a child process: a thread of the worker starts, serves and awaits the child."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

from leasehold.domain.outcome import AttemptTimedOut, Crashed, HandedBack, Outcome, Success
from leasehold.domain.signals import StopRequested
from leasehold.run.attempt import Attempt
from leasehold.run.error_text import signal_name
from leasehold.tasks.definition import TaskDefinition, margin
from leasehold.worker.process.child import Child
from leasehold.worker.process.endings import STOPPED, outcome_from
from leasehold.worker.process.job_message import JobSheet, TaskSheet, task_sheet
from leasehold.worker.process.rpc_client import CUT_OFF

KILL_TIME = 5.0
"""Seconds from the kill of a child to its end. After that it hangs in the kernel, and its thread with it."""
NO_ROOM_DELAY = 10.0
"""Seconds after which a job may come back that found no room for its process."""


class EndedAs(BaseException):
    """How a child's attempt ended, if not with success."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class Processes:
    """What the child processes of one worker share."""

    def __init__(self, tasks: Iterable[TaskDefinition], stop_grace: float, capture_logs: bool) -> None:
        """Raises InvalidTask for a task that no other process could import: now, not when it is claimed."""
        self.stop_grace = stop_grace
        self._capture_logs = capture_logs
        self._sheets: dict[TaskDefinition, TaskSheet] = {}
        for task in tasks:
            if task.in_process:
                self.sheet_of(task)

    def sheet_of(self, task: TaskDefinition) -> TaskSheet:
        if task not in self._sheets:
            self._sheets[task] = task_sheet(task, self._capture_logs)
        return self._sheets[task]


class ProcessAttempt(Attempt):
    _child: Child | None = None
    _over: str | None = None
    processes: Processes
    """Set before it runs."""

    def call(self, arguments: dict[str, Any]) -> Success:
        """The arguments have been checked; the child reads them again, from the job."""
        journal = self.needed_journal()
        sheet = JobSheet(self.processes.sheet_of(self.definition), self.grant, journal.has_folder)
        try:
            child = Child(self, sheet)
        except OSError as error:
            raise EndedAs(
                HandedBack(f"its worker could not start a process: {error}", NO_ROOM_DELAY)
            ) from error
        try:
            self._child = child
            child.extend(self._expires_at)
            if self.stop_requested:  # since before the child could be notified
                child.stop(self._grace())
            child.serve()
            return self._judged(child)
        finally:
            self._child = None
            child.close()

    @property
    def _expires_at(self) -> float:
        """When another worker may get the job, by the monotonic clock."""
        return self.lease_until + margin(self.grant.lease_seconds)

    def renewed(self, sent_at: float) -> None:
        super().renewed(sent_at)
        if (child := self._child) is not None:
            child.extend(self._expires_at)

    def request_stop(self) -> None:
        super().request_stop()
        if (child := self._child) is not None:
            child.stop(self._grace())

    def patience(self, stop_grace: float) -> float:
        return stop_grace + KILL_TIME

    def _grace(self) -> float:
        """0 if the lease is lost: the next attempt may run already. Else the guard kills it at the lease's end."""
        return 0.0 if self.cause == "lost" else self.processes.stop_grace

    # -- how it ended ----------------------------------------------------------------------------------------------
    def _judged(self, child: Child) -> Success:
        if child.message is not None:
            return self._as_reported(child.message)
        if self.stop_requested:
            raise StopRequested
        if child.expired:
            raise EndedAs(HandedBack("its lease could not be renewed"))
        if child.garbled:
            raise ChildProcessError("its process spoiled its connection to the worker, and was killed")
        if child.code is None:
            raise EndedAs(Crashed("its process, and the one that guards it, were killed"))
        if child.code < 0:
            raise EndedAs(self._killed(-child.code, child.stack))
        if child.code == CUT_OFF:
            raise ChildProcessError("its process cut its connection to the worker")
        raise ChildProcessError(f"its process ended with exit code {child.code} before the task had returned")

    def _as_reported(self, message: dict[str, Any]) -> Success:
        if message["end"] == STOPPED:
            self._over = message.get("over")
            raise StopRequested
        outcome = outcome_from(message)
        if isinstance(outcome, Success):
            return outcome
        raise EndedAs(outcome)

    def _killed(self, number: int, stack: str) -> Outcome:
        if number == signal.SIGXCPU and self.definition.settings.cpu_time is not None:
            return AttemptTimedOut(
                f"it computed for longer than cpu_time={self.definition.settings.cpu_time!r}"
            )
        text = f"its process was killed by {signal_name(number)}"
        if number == signal.SIGKILL:
            text += "; the kernel does that where memory runs out"
        return Crashed(f"{text}\n\n{stack}" if stack else text)

    def judge(self, value: object) -> Success:
        """The child has judged the value."""
        assert isinstance(value, Success)
        return value

    def judge_error(self, error: BaseException) -> Outcome | None:
        if isinstance(error, EndedAs) and self.cause != "lost":
            return error.outcome
        return super().judge_error(error)

    def over_budget(self) -> object:
        return self._over
