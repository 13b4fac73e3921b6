"""One attempt as its handler's context sees it: its journal, and the steps, questions and follow-ups that it began."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from leasehold.domain.checks.payload import fits_row
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob
from leasehold.run.follow_ups import FollowUps
from leasehold.run.journal import Journal
from leasehold.run.questions import QuestionBox
from leasehold.run.state import RunState, current_run
from leasehold.run.steps import Steps
from leasehold.tasks.definition import TaskDefinition


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

    @property
    def wants_file(self) -> bool:
        """Whether the result goes to a file, however small it is."""
        raise NotImplementedError

    def encode_result(self, value: Any) -> str | None:
        """Encode a result; it may be larger than a row allows if there is a folder for results."""
        return self.definition.encode_result(value, self.journal is not None and self.journal.has_folder)

    def becomes_file(self, text: str | None) -> bool:
        return (
            text is not None
            and self.journal is not None
            and self.journal.has_folder
            and (self.wants_file or not fits_row(text))
        )

    def file_result(self, text: str) -> str:
        """Write the result, and return its name once it is on the disk. A file that is never settled does no harm."""
        store, grant = self.needed_journal().store, self.grant
        return self.patiently(lambda: store.file_result(grant.id, grant.token, text))

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
