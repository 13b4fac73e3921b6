"""Where a task's function runs: on its worker's loop, in one of its threads, or in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, Protocol

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.sizes import Size, size
from leasehold.domain.errors import InvalidTask

RunIn = Literal["loop", "thread", "process"]

LEAST_MEMORY = 128 * 2**20
"""Python and this package take most of it before a task's own code is there."""


class Placed(Protocol):
    """The settings that say where."""

    @property
    def run_in(self) -> RunIn | None: ...

    @property
    def memory(self) -> Size | None: ...

    @property
    def cpu_time(self) -> Duration | None: ...


def is_in_process(settings: Placed, function: Callable[..., Any], is_async: bool) -> bool:
    """Whether each job gets a process. Raises InvalidTask for a place where the function cannot run."""
    if settings.run_in == "process":
        _check_process(settings, function)
        return True
    for name in ("memory", "cpu_time"):
        if getattr(settings, name) is not None:
            raise InvalidTask(name, "limits a process, and this task has none", "add run_in='process'")
    wrong, kind, place = ("thread", "an async", "loop") if is_async else ("loop", "a plain", "thread")
    if settings.run_in == wrong:
        raise InvalidTask(
            "run_in", f"{kind} function does not run in the {wrong}", f"use {place!r} or 'process'"
        )
    return False


def _check_process(settings: Placed, function: Callable[..., Any]) -> None:
    if os.name == "nt":
        raise InvalidTask("run_in", "'process' is not available on Windows", "leave it out")
    if settings.memory is not None:
        size(settings.memory, "memory", LEAST_MEMORY)
    if settings.cpu_time is not None:
        seconds(settings.cpu_time, "cpu_time", positive=True)
    name = getattr(function, "__qualname__", "")
    if "<" in name or not name:
        # <locals>, <lambda>
        raise InvalidTask(
            "run_in",
            f"{name or function!r} cannot be imported, and a process of its own has to",
            "define it at the top of a module",
        )
