"""What an exception of a handler means for its job."""

from __future__ import annotations

import traceback

from leasehold.domain.errors import InvalidArguments, InvalidInput, OverBudget, Unstorable
from leasehold.domain.outcome import Breached, Failure, Outcome, Snoozed, Stopped
from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze
from leasehold.tasks.definition import TaskDefinition


def outcome_of(error: BaseException, definition: TaskDefinition) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case RetryIn():
            return Snoozed(error.delay, error.reason)
        case Pause():
            return Stopped(error.reason, pause=True)
        case Fail():
            return Failure(error.reason, final=True)
        case OverBudget():
            return Breached(str(error))
        case InvalidArguments():
            return Failure(f"its arguments no longer fit: {error}", final=True)
        case Unstorable():
            return Failure(f"unstorable result: {error}", final=True)
        case InvalidInput():
            # The same call would be refused again.
            return Failure(describe(error), final=True)
        case _:
            return Failure(describe(error), final=not definition.settings.retry.covers(error))


def describe(error: BaseException) -> str:
    """The message first, then where it came from; our own frame on top is left out."""
    head = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return head
    return head + "\n\n" + "".join(traceback.format_list(frames)).rstrip()
