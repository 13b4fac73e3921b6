"""`queues`, `tasks` and `lanes`: their jobs and pauses, and the verbs to pause and resume them."""

from __future__ import annotations

from leasehold.domain.records import COUNT_CAP, PauseRecord, QueueRow
from leasehold.domain.states import State
from leasehold.operations import queues as verbs
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import noun
from leasehold.surfaces.cli.verbs import add

queues = noun("queues")
tasks = noun("tasks")
lanes = noun("lanes")

PROSE = ("jobs", "paused")


def columns() -> render.Columns[QueueRow]:
    return {
        "queue": "queue",
        "task": "task",
        "workers": "workers",
        "jobs": lambda row: counted(row.counts),
        "paused": lambda row: "; ".join(_pause(one) for one in (row.queue_pause, row.task_pause) if one),
    }


def counted(counts: dict[State, int]) -> str:
    return ", ".join(f"{n:,}{'+' if n >= COUNT_CAP else ''} {state}" for state, n in counts.items())


def _pause(pause: PauseRecord) -> str:
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"{pause.scope}{by}{_until(pause)}{why}"


def _until(pause: PauseRecord) -> str:
    return f" until {render.clean(pause.until)}" if pause.until else ""


NOTHING = "{store} has never had a job; store one with leasehold jobs enqueue"
for below, pause, resume in (
    (queues, verbs.pause_queue, verbs.resume_queue),
    (tasks, verbs.pause_task, verbs.resume_task),
):
    add(below, verbs.list_queues, columns=columns(), empty=NOTHING, prose=PROSE)
    add(below, pause, lambda one, _: f"{one.scope} {one.name} is paused{_until(one)}")
    word = pause.name.partition(".")[0]
    add(below, resume, f"{word} {{name}} is resumed", f"{word} {{name}} was not paused")

add(
    queues,
    verbs.list_pauses,
    columns={"what": "scope", "name": "name", "by": "paused_by", "until": "until", "reason": "reason"},
    empty="nothing is paused",
    prose=("reason",),
)
add(
    lanes,
    verbs.list_lanes,
    columns={
        "lane": "lane",
        "state": "state",
        "id": "job_id",
        "task": "task",
        "detail": lambda lane: lane.worker or render.cut(lane.error or lane.reason, 60),
    },
    empty="no lane is held or halted",
    ids=True,
)
add(lanes, verbs.resume_lane, refused="nothing halts lane {lane!r}")
