"""Running one job: decode, call, and say how it ended. What a handler stores meanwhile goes through its context."""

from __future__ import annotations

import asyncio
import traceback

from leasehold.domain.errors import InvalidArguments, InvalidInput, OverBudget, Unstorable
from leasehold.domain.outcome import Breached, Failure, Outcome, Snoozed, Stopped, Success
from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze, StopRequested
from leasehold.run.asking import park_in
from leasehold.run.attempt import Running
from leasehold.run.context import Context
from leasehold.run.spending import has_limits
from leasehold.tasks.definition import TaskDefinition


async def run_async(run: Running) -> Outcome | None:
    """Run on the loop. None: the lease is lost, nothing may be written."""
    try:
        arguments = run.definition.call_arguments(run.grant.args, run.context)
        if run.definition.context_parameter and isinstance(run.context, Context) and has_limits(run.context):
            # So is `ctx.left`.
            await run.context._load_budget()
        if run.grant.attempt > 1 and isinstance(run.context, Context) and run.definition.context_parameter:
            # `ctx.saved` is an attribute: an async handler must not wait for the database in it.
            await run.context._load_saved()
        return _success(run, await run.definition.function(**arguments))
    except asyncio.CancelledError:
        if run.cause is None:
            return Failure("CancelledError: the handler cancelled itself")
        return run.outcome_when_stopped()
    except BaseException as error:
        return _raised(run, error)


def run_sync(run: Running) -> Outcome | None:
    """Run in this thread."""
    try:
        arguments = run.definition.call_arguments(run.grant.args, run.context)
        return _success(run, run.definition.function(**arguments))
    except BaseException as error:
        return _raised(run, error)


_NOTHING = Success()


def _success(run: Running, value: object) -> Success:
    follow_ups = run.context._unstored()
    if value is None and not follow_ups:
        return _NOTHING
    return Success(run.definition.encode_result(value), None, follow_ups)


def _raised(run: Running, error: BaseException) -> Outcome | None:
    if isinstance(error, StopRequested) and run.cause is not None:
        return run.outcome_when_stopped()
    if run.cause == "lost":
        return None
    if (park := park_in(error)) is not None:
        return park.asked
    return outcome_of(error, run.definition)


def outcome_of(error: BaseException, definition: TaskDefinition) -> Outcome:
    """What an exception of a handler means."""
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
    """The message first, then where it came from; our own frames on top are left out."""
    head = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return head
    return head + "\n\n" + "".join(traceback.format_list(frames)).rstrip()
