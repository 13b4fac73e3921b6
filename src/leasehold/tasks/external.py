"""External tasks: which runner starts their executions, how to stop them, and what their exit codes mean."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from leasehold.domain.checks.texts import check_choice
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidTask, RunnerUnreachable
from leasehold.domain.policy import OnLost
from leasehold.runners.contract import Collected, Runner
from leasehold.tasks.settings import RunInSettings

ExitMeaning = Literal["success", "retry", "fail"]
ResultFrom = Literal["file", "last_line"]


@dataclass(frozen=True, kw_only=True)
class External:
    open_runner: Callable[[], Runner[Any]]
    """Makes the runner. A worker calls it when it first needs one: a producer needs no Docker engine."""
    to_spec: Callable[[Any], Any]
    """Converts the function's return value into the runner's spec. Raises InvalidInput."""
    exit_codes: Mapping[int, ExitMeaning] = field(default_factory=dict)
    """What exit codes mean: "success", "retry" or "fail". By default 0 is a success, and any other a failure
    that may be retried."""
    result_from: ResultFrom = "file"
    """Where the result comes from: the JSON in the file LEASEHOLD_RESULT, or the last line of the output."""
    collect: Callable[[Collected], Any] | None = None
    """Makes the result from what a successful execution left: output, result, files. A plain function; it
    runs in a thread, before any of the files are deleted."""
    stop_grace: Duration = 10.0
    """How long the execution gets between SIGTERM and SIGKILL."""

    def __post_init__(self) -> None:
        codes = dict[Any, Any](self.exit_codes)
        for code, meaning in codes.items():
            if not isinstance(code, int) or isinstance(code, bool) or not -64 <= code <= 255:
                raise InvalidTask(
                    "exit_codes", f"{code!r} is not an exit code", "give 0 to 255, or minus a signal"
                )
            if meaning not in get_args(ExitMeaning):
                known = ", ".join(map(repr, get_args(ExitMeaning)))
                raise InvalidTask(
                    "exit_codes", f"{code} means {meaning!r}, which is not known", f"use {known}"
                )
        check_choice("result_from", self.result_from, ResultFrom, InvalidTask)
        seconds(self.stop_grace, "stop_grace")

    @functools.cached_property
    def runner(self) -> Runner[Any]:
        return self.open_runner()

    def check_runner(self, task: str) -> None:
        """Check that the runner can be reached. Raises RunnerUnreachable."""
        try:
            _ = self.runner.site
        except OSError as error:
            raise RunnerUnreachable(task, str(error)) from error

    @property
    def grace(self) -> float:
        return seconds(self.stop_grace, "stop_grace")

    def meaning_of(self, code: int) -> ExitMeaning:
        return self.exit_codes.get(code, "retry" if code else "success")


def check_external(task: str, settings: RunInSettings, context_parameter: str | None) -> None:
    if context_parameter is not None:
        raise InvalidTask(
            context_parameter,
            f"{task!r} only says what to run, and has ended when that begins",
            "leave the context out; a result goes to the file LEASEHOLD_RESULT",
        )
    if settings.run_in is not None:
        raise InvalidTask("run_in", f"{task!r} runs outside of the worker", "leave it out")


def check_on_lost(on_lost: OnLost, external: External | None) -> None:
    if external is None and on_lost == "adopt":
        raise InvalidTask(
            "on_lost",
            "'adopt' is only for what outlives its worker",
            "use 'retry' or 'fail', or make it a command: @app.command",
        )
    if external is not None and on_lost != "adopt":
        raise InvalidTask(
            "on_lost", f"{on_lost!r} would start a second run beside one that may live", "leave it out"
        )


def as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return an awaitable function: a plain one may read a file, so it runs in a thread and does not block the loop."""
    if inspect.iscoroutinefunction(function):
        return function

    async def as_async(**arguments: Any) -> Any:
        return await asyncio.to_thread(function, **arguments)

    return as_async
