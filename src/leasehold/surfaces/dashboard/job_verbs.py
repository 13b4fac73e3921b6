"""Which verbs a job takes as it stands, by the table of the state machine. Pure."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import Flag, State, Trigger, allowed
from leasehold.domain.tokens import TokenScope


@frozen
class Verb:
    name: str
    """As the audit has it, behind `job.`."""
    word: str
    sure: str
    about: str
    scope: TokenScope = "operate"
    reason: bool = False
    look: str = ""


def _resumable(job: Job) -> bool:
    """A running one only takes back the pause that it was asked for."""
    return job.state is not State.RUNNING or job.stop_requested is Flag.PAUSE


_CHECKS: dict[str, Callable[[Job], bool]] = {
    "resume": _resumable,
    "release": lambda job: job.held,
    "skip": lambda job: job.halts_lane,
}

_VERBS: tuple[tuple[Trigger, Verb], ...] = (
    (
        Trigger.RESUME,
        Verb("resume", "Resume", "Resume it", "Continues the job. Steps that are stored are not run again."),
    ),
    (Trigger.RELEASE, Verb("release", "Release", "Release it", "Lifts the hold it was enqueued with.")),
    (
        Trigger.SKIP,
        Verb("skip", "Skip", "Skip it", "The job stays failed, and its lane continues.", reason=True),
    ),
    (
        Trigger.RETRY,
        Verb(
            "retry",
            "Retry as a new job",
            "Create the job",
            "Creates a new job like this one. This one stays as it is.",
        ),
    ),
    (
        Trigger.PAUSE,
        Verb(
            "pause", "Pause", "Pause it", "Stops the job as soon as possible. It can be resumed.", reason=True
        ),
    ),
    (
        Trigger.INTERRUPT,
        Verb(
            "interrupt",
            "Interrupt",
            "Interrupt it",
            "Pauses the job if it is running, otherwise cancels it.",
            reason=True,
            look="danger",
        ),
    ),
    (
        Trigger.CANCEL,
        Verb("cancel", "Cancel", "Cancel it", "Ends the job for good.", reason=True, look="danger"),
    ),
)

ABANDON = Verb(
    "abandon",
    "Abandon its execution",
    "Abandon it",
    "Only if its machine is gone for good. If the execution is still alive, the next attempt will run beside it.",
    scope="admin",
    reason=True,
    look="danger",
)
VERBS: tuple[Verb, ...] = (*(verb for _, verb in _VERBS), ABANDON)


def verbs_of(job: Job) -> list[Verb]:
    found = [
        verb
        for event, verb in _VERBS
        if allowed(job.state, event) and (verb.name not in _CHECKS or _CHECKS[verb.name](job))
    ]
    return [*found, ABANDON] if job.orphan and job.execution_name is not None else found
