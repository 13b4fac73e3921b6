"""One attempt as its handler's context sees it: its journal, and the steps, questions and follow-ups that it began."""

from __future__ import annotations

from typing import Any

from leasehold.domain.checks.payload import fits_row
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob
from leasehold.run.follow_ups import FollowUps
from leasehold.run.journal import Journal
from leasehold.run.questions import QuestionBox
from leasehold.run.state import RunState
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
