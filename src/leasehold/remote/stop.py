"""Stops, as requests."""

from __future__ import annotations

import time
from dataclasses import replace

from typing_extensions import TypedDict

from leasehold.domain.stop import StopRequest
from leasehold.errors import JobNotFound
from leasehold.remote import decode
from leasehold.remote.exchange import LONGEST_WAIT, Talk, get, given, post
from leasehold.remote.job import job_path
from leasehold.types import Duration, Names, State, StopMode, StopReport


class StopManner(TypedDict, total=False):
    """How a stop is done: the keywords of `group.stop`."""

    mode: StopMode
    reason: str | None
    wait: Duration
    dry_run: bool
    hold: bool


class StopOptions(StopManner, total=False):
    """What a stop is about, and how it is done: the keywords of `api.stop`."""

    group: str | None
    queue: str | None
    tasks: Names
    lane: str | None
    tags: Names
    everything: bool


def stopping(request: StopRequest) -> Talk[StopReport]:
    """The server waits for a minute at most; then we look after those that still run."""
    until = time.monotonic() + request.longest
    first = min(request.longest, LONGEST_WAIT)
    body = given(
        group=request.group,
        queue=request.queue,
        tasks=_listed(request.tasks),
        lane=request.lane,
        tags=_listed(request.tags),
        everything=request.everything,
        mode=request.mode,
        reason=request.reason,
        wait=first,
        dry_run=request.dry_run,
        hold=request.hold,
    )
    report = decode.stop_report((yield post("/v1/stop", body, wait=first)))
    running = list(report.still_running)
    if request.dry_run or request.mode == "immediate":
        return report
    while running and (left := until - time.monotonic()) > 0:
        try:
            job = decode.job((yield get(job_path(running[0]), wait=min(left, LONGEST_WAIT))))
        except JobNotFound:
            running.pop(0)
        else:
            if job.state is not State.RUNNING:
                running.pop(0)
    return replace(report, still_running=running)


def _listed(names: Names) -> list[str] | None:
    return [names] if isinstance(names, str) else None if names is None else list(names)
