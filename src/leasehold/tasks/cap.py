"""The settings `cap` and `queueing` of a task: what they may be, and what goes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.domain.errors import InvalidInput, InvalidTask

if TYPE_CHECKING:
    from leasehold.tasks.blueprint import CallSettings
    from leasehold.tasks.definition import TaskSettings

_NO_QUEUE = "is for jobs that go back to a queue, and queueing is off"


def check_cap(cap: object) -> None:
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
        raise InvalidTask("cap", f"{cap!r} is not a number of runs", "give 1 or more")


def check_without_queue(settings: TaskSettings, explicit_retry: bool) -> None:
    """What a task without a queue cannot promise is refused where it is written, not lost at run time."""
    if not isinstance(settings.queueing, bool):
        raise InvalidTask("queueing", f"{settings.queueing!r} is no choice", "use True or False")
    if settings.queueing:
        return
    if explicit_retry and settings.retry.max_attempts > 1:
        raise InvalidTask("retry", _NO_QUEUE, "leave it out: such a job runs once")
    if settings.on_lost == "adopt":
        raise InvalidTask("on_lost", f"'adopt' {_NO_QUEUE}", "leave it out: a lost run fails")
    if settings.on_drain == "pause":
        raise InvalidTask("on_drain", f"'pause' {_NO_QUEUE}", "leave it out: an interrupted run fails")


def checked_cap(task: str, settings: TaskSettings, call: CallSettings) -> int:
    """Of a call that shall run at once: its cap. What would make it wait is refused."""
    for name, given in (
        ("delay", call.delay != 0),
        ("at", call.at is not None),
        ("hold", call.hold),
        ("after", bool(call.after)),
        ("key", call.key is not None),
    ):
        if given:
            raise InvalidInput(name, "makes a job wait, and run_now starts it at once", "leave it out")
    if settings.cap is None:
        raise InvalidInput(
            "cap",
            f"task {task!r} has none",
            "say how many may run at once: app.run_now(task.using(cap=4), …)",
        )
    return settings.cap
