"""The tasks of one app, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from leasehold.domain.errors import InvalidInput, UnknownTask
from leasehold.domain.schedules import Schedule
from leasehold.domain.task_cards import TaskCard
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.external import External
from leasehold.tasks.settings import OF_TASK, TaskSettings


class Registry:
    def __init__(self) -> None:
        self.definitions: dict[str, TaskDefinition] = {}
        """A live view: tasks registered later appear too."""
        self.schedules: dict[str, Schedule] = {}
        """Schedules declared in code, by name."""

    def add(
        self,
        function: Callable[..., Any],
        name: str | None,
        settings: Mapping[str, Any],
        external: External | None = None,
    ) -> TaskDefinition:
        unknown = sorted(settings.keys() - OF_TASK)
        if unknown:
            raise InvalidInput(
                unknown[0], "is not a setting of a task", f"known: {', '.join(sorted(OF_TASK))}"
            )
        if external is not None:
            settings = {"on_lost": "adopt", **settings}
        definition = TaskDefinition(function, name, TaskSettings(**settings), external)
        known = self.definitions.get(definition.name)
        if known is not None and _place(known.function) != _place(function):
            raise InvalidInput(
                "task", f"{definition.name!r} is registered already", "give one of them another name"
            )
        self.definitions[definition.name] = definition
        return definition

    def schedule(self, schedule: Schedule) -> None:
        known = self.schedules.get(schedule.name)
        if known is not None and known.task != schedule.task:
            raise InvalidInput(
                "schedule",
                f"{schedule.name!r} is declared already, for task {known.task!r}",
                "give one of them another name",
            )
        self.schedules[schedule.name] = schedule

    def find(self, name: str) -> TaskDefinition:
        """Return the definition. Raises UnknownTask."""
        try:
            return self.definitions[name]
        except KeyError:
            raise UnknownTask(name, list(self.definitions)) from None

    def cards(self) -> list[TaskCard]:
        """Return what callers may know of every task, by name."""
        return [task.card for _, task in sorted(self.definitions.items())]

    def queues(self) -> dict[str, str]:
        """Return the default queue of every task."""
        return {name: task.settings.queue for name, task in self.definitions.items()}


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    """Identify a function: the same one met twice (a module imported under two names, a reload) is no conflict."""
    return function.__module__, function.__qualname__
