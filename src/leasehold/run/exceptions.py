"""Exceptions of handlers: mapped to the outcome of the attempt, formatted as text to store, `sys.exit` contained."""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol

from leasehold.domain.errors import InvalidArguments, InvalidInput, NotSerializable, OverBudget, leaves
from leasehold.domain.outcome import ERROR_LIMIT, Breached, Failure, Outcome, Snoozed, Stopped
from leasehold.domain.signals import Fail, HandlerExit, Pause, RetryIn, Signal, Snooze
from leasehold.run.state import RunState, current_run
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
        case NotSerializable() if error.field.startswith(f"{definition.name}.result"):
            return Failure(f"the result is not serializable: {error}", final=True)
        case InvalidInput():
            # The same call would be refused again. The error names what was refused: an update, a step, an argument.
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


# -- the text to store -------------------------------------------------------------------------------------------------

OURS = str(Path(__file__).parents[1])
"""The path of our own frames: they say nothing about the user's code."""
FIRST_FRAMES, LAST_FRAMES = 10, 30
"""Frames shown of a deep stack: at its beginning, and where it broke."""
MOST_MEMBERS_NAMED = 5
"""Most members of a group that its first line names."""
LONGEST_NAME = 200


def describe(error: BaseException) -> str:
    """Describe the error. The first line of a group names its members. Causes and members follow, each with its own
    stack, until the text is longer than a row allows."""
    parts, size = [], 0
    for part in _parts(error):
        parts.append(part)
        size += len(part)
        if size > ERROR_LIMIT:
            break
    return "\n\n".join(parts)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _parts(error: BaseException) -> Iterator[str]:
    """Yield the texts of an error, its causes and its members. No recursion: a chain of causes may be longer than the
    stack is deep, or a cycle."""
    coming: list[tuple[str, BaseException]] = [("", error)]
    seen: set[int] = set()
    while coming:
        how, error = coming.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield how + _cut(_head(error), ERROR_LIMIT // 4) if how else _head(error)
        if stack := _stack(error):
            yield stack
        if error.__cause__ is not None:
            coming.append(("caused by ", error.__cause__))
        elif error.__context__ is not None and not error.__suppress_context__:
            coming.append(("raised while handling ", error.__context__))
        if isinstance(error, BaseExceptionGroup):
            members = enumerate(error.exceptions, 1)
            numbered = [(f"{number} of {len(error.exceptions)}: ", member) for number, member in members]
            coming += reversed(numbered)


def _head(error: BaseException) -> str:
    """Format it as Python prints it, notes included; a group with the first lines of its members."""
    head = "".join(traceback.format_exception_only(error)).strip()
    if not isinstance(error, BaseExceptionGroup):
        return head
    found = leaves(error)
    named = [_cut(_head(leaf).partition("\n")[0], LONGEST_NAME) for leaf in found[:MOST_MEMBERS_NAMED]]
    if len(found) > MOST_MEMBERS_NAMED:
        named.append(f"{len(found) - MOST_MEMBERS_NAMED:,} more")
    first, _, notes = head.partition("\n")
    return f"{first}: {' | '.join(named)}" + (f"\n{notes}" if notes else "")


def _stack(error: BaseException) -> str:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(OURS)
    ]
    if len(frames) <= FIRST_FRAMES + LAST_FRAMES:
        return "".join(traceback.format_list(frames)).rstrip()
    left_out = len(frames) - FIRST_FRAMES - LAST_FRAMES
    return (
        "".join(traceback.format_list(frames[:FIRST_FRAMES]))
        + f"  … {left_out:,} frames …\n"
        + "".join(traceback.format_list(frames[-LAST_FRAMES:])).rstrip()
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"


# -- exits -------------------------------------------------------------------------------------------------------------
# asyncio lets SystemExit and KeyboardInterrupt out of the loop, whichever task raises them: one job's `sys.exit` would
# end the worker, and all other jobs with it. So a worker's loop wraps the tasks of its attempts: the wrapper turns both
# into a `HandlerExit`, and ends the attempt.

_EXITS = (SystemExit, KeyboardInterrupt)


class TaskFactory(Protocol):
    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, /, **more: Any) -> asyncio.Future[Any]: ...


class ExitGuard:
    """Guards a worker's loop while the worker lives. The loop's previous task factory still makes the tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before: Any = None

    def start(self) -> None:
        self._before = self._loop.get_task_factory()
        self._loop.set_task_factory(self._make)

    def stop(self) -> None:
        """Stop, but leave our factory if another one was installed on top of it: that one still calls ours."""
        if self._loop.get_task_factory() == self._make:
            self._loop.set_task_factory(self._before)

    def _make(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
        context = more.get("context")
        attempt = current_run.get() if context is None else context.get(current_run)
        if attempt is not None and isinstance(coro, Coroutine) and not isinstance(coro, GuardedCoroutine):
            coro = GuardedCoroutine(coro, attempt)
        make: TaskFactory = self._before or _plain_task
        return make(loop, coro, **more)


def _plain_task(loop: asyncio.AbstractEventLoop, coro: Any, /, **more: Any) -> asyncio.Future[Any]:
    return asyncio.Task(coro, loop=loop, **more)


class GuardedCoroutine(Coroutine[Any, Any, Any]):
    """Wraps a coroutine to catch `_EXITS`. Not an `async def` around it: if that is cancelled before its first step,
    the inner coroutine is never awaited, and Python warns about it."""

    def __init__(self, inner: Coroutine[Any, Any, Any], attempt: RunState) -> None:
        self._inner = inner
        self.attempt = attempt

    def __getattr__(self, name: str) -> Any:
        # Frame, code and name, for code that prints tasks.
        return getattr(self._inner, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except _EXITS as error:
            self._exit(error)

    def throw(self, *error: Any) -> Any:
        try:
            return self._inner.throw(*error)
        except _EXITS as found:
            self._exit(found)

    def close(self) -> None:
        self._inner.close()

    def _exit(self, error: BaseException) -> NoReturn:
        self.attempt.exited(error)
        raise HandlerExit(f"a task of the handler raised {type(error).__name__}") from error
