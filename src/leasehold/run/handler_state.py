"""One attempt as its handler's context sees it: its journal, and the steps, questions and follow-ups that it began."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from leasehold.domain.checks.payload import fits_database, fits_row
from leasehold.domain.errors import InvalidInput, LeaseLost, ResultsUnwritable
from leasehold.domain.job import NewJob
from leasehold.domain.outcome import Failure
from leasehold.domain.signals import StopRequested
from leasehold.run.follow_ups import FollowUps
from leasehold.run.journal import Journal
from leasehold.run.questions import QuestionBox
from leasehold.run.state import RunState, current_run
from leasehold.run.steps import Steps
from leasehold.tasks.definition import TaskDefinition

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two tries to write a result."""


class HandlerState(RunState):
    definition: TaskDefinition
    journal: Journal | None = None
    """None outside of a worker."""
    resources: Any = None
    """What the app's lifespan has yielded."""
    steps: Steps | None = None
    """Made when the handler first uses it."""
    follow_ups: FollowUps | None = None
    """Made with the first follow-up: most attempts have none."""
    questions_box: QuestionBox | None = None
    """Made with the first question."""

    unkept: Failure | None = None
    """The end of an attempt whose result could not be stored anywhere before it had to stop."""

    @property
    def may_write(self) -> bool:
        """Whether a stopped attempt may still store its result."""
        raise NotImplementedError

    @property
    def wants_file(self) -> bool:
        """Whether the result goes to a file, however small it is."""
        raise NotImplementedError

    def encode_result(self, value: Any) -> str | None:
        """Encode a result; it may be larger than the database takes if there is a folder for results."""
        return self.definition.encode_result(value, self.journal is not None and self.journal.has_folder)

    def leaves_row(self, text: str | None) -> bool:
        """Whether the result is stored outside of its row: as a file, or in pieces."""
        if text is None or self.journal is None:
            return False
        return (self.wants_file and self.journal.has_folder) or not fits_row(text)

    def file_result(self, text: str) -> str:
        """Write the result, and return its name once it is on the disk. A result that is never settled does no harm."""
        pause = SHORTEST_PAUSE
        while (name := self.try_to_file(text)) is None:
            self.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return name

    def try_to_file(self, text: str) -> str | None:
        """`file_result`, once. None: the folder does not take the result for now; it is kept meanwhile, as while the
        database is away. An attempt that must stop gives the folder up: the database stores the result if it can, else
        the job fails for good and StopRequested is raised. To run it again would be to pay again."""
        journal, grant = self.needed_journal(), self.grant
        store, kept = journal.store, journal.results_kept
        try:
            name = self.patiently(lambda: store.file_result(grant.id, grant.token, text, self.wants_file))
        except ResultsUnwritable as error:
            if not self.must_stop:
                self.show_life()
                kept.begin(self, error)
                return None
            kept.give_up(self)
            return self._result_without_folder(text, error)
        except LeaseLost as error:
            kept.give_up(self)
            journal.lost(self)
            raise StopRequested from error
        except BaseException:
            kept.give_up(self)
            raise
        kept.end(self)
        return name

    def _result_without_folder(self, text: str, error: ResultsUnwritable) -> str:
        if not self.may_write:
            raise StopRequested from error
        if not fits_database(text):
            size = len(text.encode())
            self.unkept = Failure(f"its result of {size:,} bytes was not stored: {error}", final=True)
            raise StopRequested from error
        store, grant = self.needed_journal().store, self.grant
        try:
            return self.patiently(lambda: store.keep_result(grant.id, grant.token, text))
        except LeaseLost as lost:
            self.needed_journal().lost(self)
            raise StopRequested from lost

    def needed_journal(self) -> Journal:
        if self.journal is None:
            raise InvalidInput(
                "ctx", "belongs to no worker", "run the job, in tests with leasehold.testing.sandbox"
            )
        return self.journal

    def open_steps(self) -> Steps:
        if self.steps is None:
            self.steps = Steps(self, self.needed_journal())
        return self.steps

    def open_questions_box(self) -> QuestionBox:
        if self.questions_box is None:
            self.questions_box = QuestionBox(self, self.needed_journal())
        return self.questions_box

    def open_follow_ups(self) -> FollowUps:
        if self.follow_ups is None:
            self.follow_ups = FollowUps()
        return self.follow_ups

    def unstored(self) -> tuple[NewJob, ...]:
        """The follow-ups that go with the success."""
        return () if self.follow_ups is None else self.follow_ups.unstored()


# -- waits for other jobs ----------------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.worker")

_warned: set[str] = set()
"""Tasks whose waits were logged: once for each is enough."""


def check_wait(awaited: str) -> None:
    """Called before a call waits in its thread for another job or a group. In a handler the wait keeps a place from
    other jobs: log a warning. On the worker's loop it would hold up all async jobs: raise InvalidInput."""
    attempt = current_run.get()
    if not isinstance(attempt, HandlerState):
        return
    if attempt.definition.runs_on_loop and _is_on_a_loop():
        raise InvalidInput(
            "wait",
            f"a wait for {awaited} would block the event loop of this worker, and with it all of its async jobs",
            "await it, such as `await job.aresult()`",
        )
    task = attempt.definition.name
    if task not in _warned:
        _warned.add(task)
        logger.warning(
            "job %s: %s waits for %s and keeps its place meanwhile: if all places wait, nothing runs any more; "
            "enqueue what comes next with after=[…] or ctx.enqueue, or wait in an async task (await job.aresult())",
            attempt.grant.id,
            task,
            awaited,
        )


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
