"""Hooks: the user's functions, by the names of their listeners."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from leasehold.domain.checks.names import checked_name
from leasehold.domain.errors import InvalidInput
from leasehold.domain.hooks import Listener, Notification
from leasehold.domain.webhooks import Webhook

Hook = Callable[[Notification], object]


class Hooks:
    """The registered functions, and which notifications each wants."""

    def __init__(self) -> None:
        self._functions: dict[str, Hook] = {}
        self._listeners: list[Listener] = []
        self.webhooks: list[tuple[Webhook, list[Listener]]] = []
        """Webhooks declared in code, with their listeners."""

    def add(
        self, events: tuple[str, ...], hook: Hook, tasks: Iterable[str] = (), name: str | None = None
    ) -> None:
        if inspect.iscoroutinefunction(hook):
            raise InvalidInput(
                "hook", f"{hook.__name__} is async", "give a plain function: it is called in a thread"
            )
        given = self._free_name(checked_name(name or _name_of(hook), "name"), hook)
        self._functions[given] = hook
        wanted = [checked_name(task, "tasks") for task in tasks] or [""]
        self._listeners += [Listener(given, event, task) for event in events for task in wanted]

    def _free_name(self, name: str, hook: Hook) -> str:
        """Make the name unique: two functions of one name are two listeners, numbered in the order of registration."""
        number, free = 1, name
        while self._functions.get(free, hook) is not hook:
            number += 1
            free = f"{name}#{number}"
        return free

    @property
    def names(self) -> list[str]:
        return list(self._functions)

    @property
    def listeners(self) -> list[Listener]:
        return list(dict.fromkeys(self._listeners))

    def get(self, name: str) -> Hook:
        return self._functions[name]


def _name_of(hook: Any) -> str:
    """Return a name that is the same in every process that has the function."""
    module = getattr(hook, "__module__", None) or type(hook).__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{getattr(hook, '__qualname__', type(hook).__qualname__)}"
