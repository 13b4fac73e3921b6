"""Decides where a task's function runs: on its worker's event loop, in a thread, or in its own process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, Protocol

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.sizes import Size, size
from leasehold.domain.errors import InvalidTask

RunIn = Literal["loop", "thread", "process"]

LEAST_MEMORY = 128 * 2**20
"""Least memory limit: Python and this package use most of it before the task's own code is loaded."""


class Placed(Protocol):
    """The settings that decide where the function runs."""

    @property
    def run_in(self) -> RunIn | None: ...

    @property
    def memory(self) -> Size | None: ...

    @property
    def cpu_time(self) -> Duration | None: ...


def is_in_process(settings: Placed, function: Callable[..., Any], is_async: bool) -> bool:
    """Return whether each job gets a process. Raises InvalidTask if the function cannot run in the place given."""
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
