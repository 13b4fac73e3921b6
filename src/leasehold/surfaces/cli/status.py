"""`status`, `top`, `why` and `doctor`: the state of the system, and its problems."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold.domain.frozen import frozen
from leasehold.domain.records import LaneHolder, QueueRow
from leasehold.domain.states import State
from leasehold.operations import jobs, questions, queues, workers
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, command
from leasehold.surfaces.cli.problems import Exit
from leasehold.surfaces.cli.queues import PROSE, columns, counted
from leasehold.surfaces.cli.render import draw, live

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leasehold.app import Leasehold

READ_STATUS_EVERY = 2.0
"""Seconds between two reads of `top`."""
MOST_QUESTIONS = 500
MOST_LANES = 3
"""Halted lanes that the status names; the others are counted."""


@frozen(kw_only=True)
class Status:
    store: str
    jobs: dict[State, int]
    """Jobs by state, each counted up to 10,000."""
    workers: int
    running: int
    """Jobs that the workers run, as they last reported."""
    places: int
    draining: int
    halted_lanes: list[LaneHolder]
    open_questions: int
    """Counted up to 500."""
    queues: list[QueueRow]


@command()
def status(call: CommandCall, follow: options.Follow = False) -> None:
    """Show jobs, queues, workers, halted lanes, open questions. With --follow, until Ctrl-C."""
    if follow:
        _follow(call)
    _print(call, _look(call.app))


@command()
def top(call: CommandCall) -> None:
    """Show the status, refreshed until Ctrl-C."""
    _follow(call)


def _look(app: Leasehold) -> Status:
    operations = app.__internals__.operations
    cards = operations.call(workers.list_workers)
    return Status(
        store=app.__internals__.store.label,
        jobs={state: count for state, count in operations.call(jobs.count).items() if count},
        workers=len(cards),
        running=sum(card.running for card in cards),
        places=sum(card.concurrency for card in cards),
        draining=sum(card.draining for card in cards),
        halted_lanes=[lane for lane in operations.call(queues.list_lanes) if lane.state != State.RUNNING],
        open_questions=len(operations.call(questions.open_questions, limit=MOST_QUESTIONS)),
        queues=operations.list_queues(),
    )


def _follow(call: CommandCall) -> NoReturn:
    if sys.stdout.isatty() and not call.as_json:
        with live(render.console()) as show:
            while True:
                show(_picture(_look(call.app)))
                time.sleep(READ_STATUS_EVERY)
    last: Status | None = None
    while True:
        now = _look(call.app)
        if now != last:
            _print(call, now)
        last = now
        time.sleep(READ_STATUS_EVERY)


def _print(call: CommandCall, found: Status) -> None:
    if call.as_json:
        render.emit(found)
        return
    render.fields(_facts(found))
    if found.queues:
        print()
        render.show(found.queues, columns(), prose=PROSE)


def _picture(found: Status) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    facts = Text("\n".join(render.field_lines(_facts(found))) + "\n")
    cells = [[render.clean(cell) for cell in row] for row in render.cells_of(found.queues, columns())]
    return Group(facts, draw(tuple(columns()), cells, render.console().width, PROSE)) if cells else facts


def _facts(found: Status) -> dict[str, Any]:
    draining = f", {found.draining} draining" if found.draining else ""
    workers = f"{found.workers} live, {found.running} of {found.places} places taken{draining}"
    more = "+" if found.open_questions >= MOST_QUESTIONS else ""
    return {
        "store": found.store,
        "jobs": counted(found.jobs) or "none",
        "workers": workers if found.workers else "none; start one with leasehold worker MODULE:APP",
        "halted lanes": _lanes(found.halted_lanes) or "none",
        "open questions": f"{found.open_questions}{more}" if found.open_questions else "none",
    }


def _lanes(halted: list[LaneHolder]) -> str:
    names = ", ".join(lane.lane for lane in halted[:MOST_LANES])
    more = len(halted) - MOST_LANES
    return f"{names} and {more:,} more" if more > 0 else names


@command()
def why(call: CommandCall, job_id: options.JobId) -> None:
    """Say why a job is not running, and what would change that."""
    holds = call.operations.call(jobs.explain, call.operations.find_id(job_id))
    if call.as_json:
        render.emit(holds)
        return
    for number, hold in enumerate(holds, 1):
        _print_wrapped(f"{number}. ", hold.detail)
        if hold.remedy:
            _print_wrapped("   → ", hold.remedy)


def _print_wrapped(begin: str, text: str) -> None:
    lines = render.wrapped(render.clean(text), len(begin))
    print(begin + f"\n{' ' * len(begin)}".join(lines))


@command()
def doctor(call: CommandCall) -> int:
    """Look for problems: clock, disk, pooler, schema, jobs, leases. Exit code 1: something is bad."""
    findings = call.operations.examine()
    if not call.as_json:
        render.note(call.label)
    render.show_findings(findings, call.as_json)
    return Exit.JOB_FAILED if any(found.verdict == "bad" for found in findings) else Exit.OK
