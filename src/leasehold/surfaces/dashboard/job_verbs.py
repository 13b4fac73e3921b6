"""The buttons of a job: the verbs that its state allows, by the table of the state machine, and their texts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import Flag, State, Trigger, allowed
from leasehold.operations import jobs
from leasehold.operations.verb import Verb


@frozen
class Button:
    verb: Verb[..., Any]
    word: str
    sure: str
    about: str

    @property
    def name(self) -> str:
        """The verb's name in the audit, without `job.`."""
        return self.verb.name.removeprefix("job.")

    @property
    def look(self) -> str:
        return "danger" if self.verb.destructive else ""

    def takes(self, argument: str) -> bool:
        return any(one.name == argument for one in self.verb.params)


def _resumable(job: Job) -> bool:
    """Whether a resume is possible: for a running job, only to withdraw a requested pause."""
    return job.state is not State.RUNNING or job.stop_requested is Flag.PAUSE


_CHECKS: dict[str, Callable[[Job], bool]] = {
    "resume": _resumable,
    "release": lambda job: job.held,
    "skip": lambda job: job.halts_lane,
    "abandon": lambda job: job.orphan and job.execution_name is not None,
}

BUTTONS = (
    Button(jobs.resume, "Resume", "Resume it", "Continues the job. Steps that are stored are not run again."),
    Button(jobs.release, "Release", "Release it", "Lifts the hold it was enqueued with."),
    Button(jobs.skip, "Skip", "Skip it", "The job stays failed, and its lane continues."),
    Button(
        jobs.retry,
        "Retry as a new job",
        "Create the job",
        "Creates a new job like this one. This one stays as it is.",
    ),
    Button(jobs.snooze, "Snooze", "Snooze it", "Sets when the job is due. It keeps its place in its lane."),
    Button(jobs.pause, "Pause", "Pause it", "Stops the job as soon as possible. It can be resumed."),
    Button(
        jobs.interrupt,
        "Interrupt",
        "Interrupt it",
        "Pauses the job if it is running, otherwise cancels it.",
    ),
    Button(jobs.cancel, "Cancel", "Cancel it", "Ends the job for good."),
    Button(
        jobs.abandon,
        "Abandon its execution",
        "Abandon it",
        "Only if its machine is gone for good. If the execution is still alive, the next attempt will run beside it.",
    ),
)


def buttons_of(job: Job) -> list[Button]:
    return [
        one
        for one in BUTTONS
        if (one.name == "abandon" or allowed(job.state, Trigger(one.name)))
        and (one.name not in _CHECKS or _CHECKS[one.name](job))
    ]
