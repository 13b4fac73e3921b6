"""Maps an exception of a handler to the outcome of its attempt."""

from __future__ import annotations

from leasehold.domain.errors import InvalidArguments, InvalidInput, NotSerializable, OverBudget, leaves
from leasehold.domain.outcome import Breached, Failure, Outcome, Snoozed, Stopped
from leasehold.domain.signals import Fail, Pause, RetryIn, Signal, Snooze
from leasehold.run.error_text import describe
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
        case NotSerializable():
            return Failure(f"unstorable result: {error}", final=True)
        case InvalidInput():
            # The same call would be refused again.
            return Failure(describe(error), final=True)
        case BaseExceptionGroup():
            return _outcome_of_group(error, definition)
        case _:
            return Failure(describe(error), final=not definition.settings.retry.covers(error))


def _outcome_of_group(group: BaseExceptionGroup[BaseException], definition: TaskDefinition) -> Outcome:
    """An exception that is never retried is not retried in a group either. Other signals in the group count only if
    nothing else went wrong."""
    found = leaves(group)
    for leaf in found:
        if isinstance(leaf, OverBudget):
            return outcome_of(leaf, definition)
    if all(isinstance(leaf, Signal) for leaf in found):
        return outcome_of(found[0], definition)
    final = any(isinstance(leaf, Fail | InvalidInput) for leaf in found)
    return Failure(describe(group), final=final or not definition.settings.retry.covers(group))
