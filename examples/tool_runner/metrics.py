"""The document's four numbers, of all workers together: queue depth, wait time, attempts, successes and failures."""

from __future__ import annotations

from typing import Any

from examples.tool_runner.app import app

ENDS = ("succeeded", "failed", "timed_out", "cancelled")


def queue_metrics() -> dict[str, dict[str, Any]]:
    """By queue. Counted by the workers, and up to ten seconds late; `leasehold workers metrics` is for Prometheus."""
    told, queues = app.metrics(), dict[str, dict[str, Any]]()

    def of(queue: str) -> dict[str, Any]:
        return queues.setdefault(
            queue, {"depth": 0, "running": 0, "runs": 0, "waited": 0.0, **dict.fromkeys(ENDS, 0)}
        )

    for count in told.jobs:
        if count.state in ("queued", "running"):
            of(count.queue)["depth" if count.state == "queued" else "running"] += count.jobs
    for total in told.totals:
        numbers = of(total.queue)
        numbers["runs"] += total.wait.count
        numbers["waited"] += total.wait.seconds
        if total.outcome in ENDS:
            numbers[total.outcome] += total.attempts
    return {queue: _rates(numbers) for queue, numbers in queues.items()}


def _rates(numbers: dict[str, Any]) -> dict[str, Any]:
    """`attempts` are runs that have begun: an adoption is none."""
    ended, runs, waited = sum(numbers[end] for end in ENDS), numbers.pop("runs"), numbers.pop("waited")
    return numbers | {
        "attempts": runs,
        "mean_wait_seconds": waited / runs if runs else None,
        "success_rate": numbers["succeeded"] / ended if ended else None,
        "failure_rate": (numbers["failed"] + numbers["timed_out"]) / ended if ended else None,
    }
