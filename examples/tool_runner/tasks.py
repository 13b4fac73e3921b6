"""The one task: run a tool in a container that outlives the worker."""

from __future__ import annotations

from typing import Any, Literal

from examples.tool_runner.app import app, settings
from examples.tool_runner.tools import TOOLS
from leasehold import Retry
from leasehold.types import Collected, Command, ContainerSpec, TaskOptions

KILLED_BY_A_SIGNAL: dict[int, Literal["retry"]] = {-number: "retry" for number in range(1, 65)}
"""A container that was killed has used up an attempt, like one that exited with an error."""


def retry(max_attempts: int) -> Retry:
    """`max_crashes` is high because a worker that died before it had started a container has cost the run nothing."""
    return Retry(max_attempts=max_attempts, max_crashes=100, backoff=settings.backoff)


def collect(left: Collected) -> dict[str, Any]:
    """What becomes the result of a run that succeeded. The mirror copies `exit_code` to a column of its own."""
    return {"exit_code": left.code, "output": left.stdout.tail}


OPTIONS: TaskOptions = {
    "mirror": True,  # the table tool_runs is kept in step with it: schema.py
    "unique": "{run_id}",  # one job per run, for ever
    "unique_for": "ever",
    "on_duplicate": "raise",
    "tags": ("run:{run_id}",),  # how the job of a run is found
    "lease": settings.lease_ttl,
    "timeout": settings.timeout,
    "retry": retry(1),
    "retention": None,
    "queueing": settings.queue_enabled,
    "max_running": settings.max_concurrency,
}
_external = app.container if settings.runner == "docker" else app.command


@_external(collect=collect, exit_codes=KILLED_BY_A_SIGNAL, stop_grace=2.0, **OPTIONS)
def run_tool(run_id: str, tool: str, argument: str) -> ContainerSpec | Command:
    """Says what to run. Leasehold names the container after the job and the attempt, so that whoever comes later finds
    it again, and never starts it twice; the label `run_id` is ours."""
    argv = ["sh", "-c", TOOLS[tool], tool, argument]
    if settings.runner == "docker":
        return ContainerSpec(
            image=settings.image, argv=argv, labels={"run_id": run_id}, memory="64MB", pids=64, read_only=True
        )
    return Command(argv)
