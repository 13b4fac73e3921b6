"""Hooks: functions of the user that the worker calls when something has happened."""

from __future__ import annotations

import inspect
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leasehold.domain.errors import InvalidInput
from leasehold.domain.stream import STALLED

logger = logging.getLogger("leasehold.hooks")

QUESTION = "question"
NAMES = (STALLED, QUESTION)
"""What a hook may be registered for."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """What a hook is called with."""

    name: str
    job_id: str
    kind: str
    queue: str
    attempt: int
    detail: str
    data: dict[str, Any] = field(default_factory=dict)


_NOTHING = HookEvent("", "", "", "", 0, "")

Hook = Callable[[HookEvent], object]
OnlyIf = Callable[[], bool] | None


class Hooks:
    """Which functions want to hear of what."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Hook]] = {}

    def add(self, names: tuple[str, ...], hook: Hook) -> None:
        if inspect.iscoroutinefunction(hook):
            raise InvalidInput(
                "hook", f"{hook.__name__} is async", "give a plain function: it is called in a thread"
            )
        for name in names:
            self._by_name.setdefault(name, []).append(hook)

    def of(self, name: str) -> list[Hook]:
        return list(self._by_name.get(name, ()))


def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    known = ", ".join(map(repr, NAMES))
    if not names:
        raise InvalidInput("on", "names nothing to wait for", f"known: {known}")
    for name in names:
        if name not in NAMES:
            raise InvalidInput("on", f"{name!r} is not known", f"known: {known}")
    return names


class HookCaller:
    """Calls hooks one after the other in a thread, which is started when there is something to call. What a hook
    raises is logged and goes no further."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._calls: queue.SimpleQueue[tuple[Hook, HookEvent, OnlyIf] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Nothing to do before the first call."""

    def call(self, event: HookEvent, only_if: OnlyIf = None) -> None:
        """`only_if` is asked in the thread, where it may take its time."""
        for hook in self._hooks.of(event.name):
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="leasehold-hooks", daemon=True)
                self._thread.start()
            self._calls.put((hook, event, only_if))

    def flush(self, seconds: float = 5.0) -> None:
        """Wait until what was asked for by now has been called."""
        if self._thread is not None:
            called = threading.Event()
            self._calls.put((lambda _: called.set(), _NOTHING, None))
            called.wait(seconds)

    def stop(self, seconds: float = 5.0) -> None:
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join(seconds)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            hook, event, only_if = call
            try:
                if only_if is None or only_if():
                    hook(event)
            except Exception:
                logger.exception("the hook %r for %r failed", getattr(hook, "__name__", hook), event.name)
