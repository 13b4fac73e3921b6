"""The message that starts a job in its own process, and the message with its ending."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from leasehold.domain.checks.numbers import size
from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import InvalidTask
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Breached, Failure, Outcome, Snoozed, Stopped, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.run.middleware import Middlewares
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import Retry, TaskSettings


@frozen
class Reference:
    """The module and name by which another process imports an object."""

    module: str
    name: str
    depth: int = 0
    """How many decorators with a `__wrapped__`, such as `@app.task`, are around the object."""

    def find(self) -> Any:
        found: Any = importlib.import_module(self.module)
        for name in self.name.split("."):
            found = getattr(found, name)
        for _ in range(self.depth):
            found = found.__wrapped__
        return found


@frozen(kw_only=True)
class TaskMessage:
    """The part of the message that all jobs of a task share."""

    task: str
    function: Reference
    retry_on: list[Reference] | None
    retry_never: list[Reference] | None
    middleware: list[Reference]
    main: dict[str, str]
    """How to run the program's main module under another name, if something in it is needed."""
    argv: list[str]
    memory: int | None
    cpu_time: int | None
    capture_logs: bool


@frozen
class JobMessage:
    task: TaskMessage
    grant: Grant
    has_folder: bool


_ADAPTER = TypeAdapter(JobMessage)


def write_message(message: JobMessage) -> bytes:
    return _ADAPTER.dump_json(message)


def read_message(text: bytes) -> JobMessage:
    return _ADAPTER.validate_json(text)


def task_message(definition: TaskDefinition, capture_logs: bool) -> TaskMessage:
    """Raises InvalidTask for an object that a fresh interpreter would not find."""
    task, settings = definition.name, definition.settings
    function = _reference(task, definition.function)
    on, never = _references(task, settings.retry.on), _references(task, settings.retry.never)
    middleware = _references(task, definition.layers) or []
    needs_main = any(one.module == "__main__" for one in (function, *(on or ()), *(never or ()), *middleware))
    return TaskMessage(
        task=task,
        function=function,
        retry_on=on,
        retry_never=never,
        middleware=middleware,
        main=_main_module(task) if needs_main else {},
        argv=list(sys.argv),
        memory=None if settings.memory is None else size(settings.memory, "memory"),
        cpu_time=None if settings.cpu_time is None else math.ceil(seconds(settings.cpu_time, "cpu_time")),
        capture_logs=capture_logs,
    )


def _references(task: str, things: Sequence[Any] | None) -> list[Reference] | None:
    return None if things is None else [_reference(task, thing) for thing in things]


def _reference(task: str, thing: Any) -> Reference:
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    found: Any = sys.modules.get(module)
    depth = 0
    try:
        for part in name.split("."):
            found = getattr(found, part)
        while found is not thing:
            found = found.__wrapped__
            depth += 1
    except AttributeError:
        raise InvalidTask(
            "run_in",
            f"task {task!r} needs {thing!r}, which is not what {module!r} has as {name!r}",
            "keep its function, its middleware and the exceptions of its retry under their own names at the top of "
            "modules: a process of its own imports them from there",
        ) from None
    return Reference(module, name, depth)


def _main_module(task: str) -> dict[str, str]:
    """Describe the main module as `multiprocessing` does."""
    from multiprocessing.spawn import get_preparation_data

    data = get_preparation_data("leasehold").items()
    main: dict[str, str] = {key: str(value) for key, value in data if key.startswith("init_main_from_")}
    if not main:
        raise InvalidTask(
            "run_in",
            f"task {task!r} was typed into an interpreter",
            "put it into a file: a process of its own imports it",
        )
    return main


def load_definition(message: TaskMessage) -> TaskDefinition:
    """Build the definition in the child: imports the user's modules."""
    sys.argv[:] = message.argv
    if message.main:
        from multiprocessing.spawn import prepare

        prepare({**message.main})
    retry = Retry(on=_found(message.retry_on), never=_found(message.retry_never))
    definition = TaskDefinition(message.function.find(), message.task, TaskSettings(retry=retry))
    middlewares = Middlewares()
    for layer in message.middleware:
        middlewares.add(layer.find())
    middlewares.apply_to(definition)
    return definition


def _found(references: list[Reference] | None) -> tuple[Any, ...] | None:
    return None if references is None else tuple(one.find() for one in references)


# -- endings -----------------------------------------------------------------------------------------------------------

STOPPED = "stopped"
"""The child ended because of a stop request. Its worker knows the reason."""

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Success, Failure, Stopped, Snoozed, QuestionAsked, Breached)
}


def ending(outcome: Outcome) -> dict[str, Any]:
    kind = type(outcome)
    return {"end": kind.__name__, "outcome": TypeAdapter(kind).dump_python(outcome, mode="json")}


def stopped(over: str | None) -> dict[str, Any]:
    """`over`: the budget limit that was passed."""
    return {"end": STOPPED, "over": over}


def outcome_from(message: dict[str, Any]) -> Outcome:
    """Raises ValueError for an unknown ending."""
    kind = _KINDS.get(message["end"])
    if kind is None:
        raise ValueError(f"no run ends as {message['end']!r}")
    found: Outcome = TypeAdapter(kind).validate_json(json.dumps(message["outcome"]))
    return found
