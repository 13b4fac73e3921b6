"""`--follow`: a list or a group as it changes. On a terminal it is drawn again; piped, each change is a line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.tables import draw

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leasehold.domain.search import Found
    from leasehold.domain.views import Page, Summary

EVERY = 1.0
"""Seconds between two looks."""
PLAIN_QUEUE = "default"


def columns_of(jobs: Sequence[Summary]) -> render.Columns[Summary]:
    """What a list tells of each job. On a terminal, where room is dear, short and without what is the same for all."""
    on_terminal = sys.stdout.isatty()
    columns: dict[str, Callable[[Summary], object]] = {
        "id": lambda job: job.id,
        "state": lambda job: job.state,
        "task": lambda job: job.kind,
        "queue": lambda job: job.queue,
        "lane": lambda job: job.lane,
        "try" if on_terminal else "attempt": lambda job: job.attempt,
        "age" if on_terminal else "created": lambda job: (
            _age(job) if on_terminal else render.ago(job.created_at)
        ),
        "detail": _detail,
    }
    if on_terminal and all(job.queue == PLAIN_QUEUE for job in jobs):
        del columns["queue"]
    return columns


def _age(job: Summary) -> str:
    return render.ago(job.created_at).removesuffix(" ago")


def _detail(job: Summary) -> str:
    if job.state == "running":
        return f"{job.lease_owner or 'an orphan'}" + (
            f", {job.stop_requested} asked" if job.stop_requested else ""
        )
    if job.state == "queued" and job.attempt == 0:
        return ""
    return render.cut(job.error or job.reason, 60)


def follow_jobs(look: Callable[[], Page | Found], ids: render.Shorten, as_json: bool) -> NoReturn:
    """Until Ctrl-C."""
    if sys.stdout.isatty() and not as_json:
        with live() as show:
            while True:
                show(drawn_jobs(look().jobs, ids))
                time.sleep(EVERY)
    known: dict[str, tuple[str, int]] = {}
    while True:
        jobs = look().jobs
        for job in reversed(jobs):
            if known.get(job.id) != (job.state, job.attempt):
                _tell(job, as_json)
        known = {job.id: (job.state, job.attempt) for job in jobs}
        time.sleep(EVERY)


def drawn_jobs(jobs: Sequence[Summary], ids: render.Shorten) -> RenderableType:
    columns = columns_of(jobs)
    cells = [[render.clean(cell) for cell in row] for row in render.cells_of(jobs, columns, ids)]
    return draw(tuple(columns), cells, render.console().width)


def _tell(job: Summary, as_json: bool) -> None:
    if as_json:
        render.emit(job)
    else:
        words = (f"{job.updated_at.astimezone():%H:%M:%S}", job.id, job.state, job.kind, _detail(job))
        print(render.clean(" ".join(words).rstrip()), flush=True)


@contextlib.contextmanager
def live() -> Iterator[Callable[[RenderableType], None]]:
    """Draws over what it has drawn before; the last picture stays."""
    from rich.live import Live

    with Live(console=render.console(), auto_refresh=False, vertical_overflow="crop") as screen:
        yield lambda picture: screen.update(picture, refresh=True)
