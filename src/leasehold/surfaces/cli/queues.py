"""`queues`, `tasks` and `lanes`: the shape of the work, and the switches on it."""

from __future__ import annotations

from leasehold.domain.records import COUNT_CAP, PauseRecord, QueueRow
from leasehold.domain.states import State
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import Call, Noun, command, noun
from leasehold.surfaces.cli.problems import Exit, complain

queues = noun("queues")
tasks = noun("tasks")
lanes = noun("lanes")


def _add_verbs(scope: Noun, word: str) -> None:
    """`queues` and `tasks` differ in one word."""

    def pause(
        call: Call, target: options.Name, for_: options.For = None, reason: options.Reason = None
    ) -> None:
        """Start no new jobs; running ones continue."""
        switch = call.app.queues if scope is queues else call.app.tasks
        paused = switch.pause(target, for_=for_, reason=reason, actor=call.actor)
        until = f" until {render.clean(paused.until)}" if paused.until else ""
        call.report(paused, f"{word} {paused.name} is paused{until}")

    def resume(call: Call, target: options.Name) -> None:
        """Start jobs again."""
        switch = call.app.queues if scope is queues else call.app.tasks
        was_paused = switch.resume(target, actor=call.actor)
        facts = {"name": target, "was_paused": was_paused}
        call.report(facts, f"{word} {target} " + ("is resumed" if was_paused else "was not paused"))

    command(scope, "list")(list_queues)
    command(scope, "pause", acts=True)(pause)
    command(scope, "resume", acts=True)(resume)


def list_queues(call: Call) -> None:
    """List queues and tasks: jobs by state, live workers, pauses."""
    call.show(
        call.operations.list_queues(),
        columns(),
        empty=f"{call.label} has never had a job; store one with leasehold jobs enqueue",
        prose=PROSE,
    )


PROSE = ("jobs", "paused")


def columns() -> render.Columns[QueueRow]:
    return {
        "queue": lambda row: row.queue,
        "task": lambda row: row.task,
        "workers": lambda row: row.workers,
        "jobs": lambda row: counted(row.counts),
        "paused": lambda row: _pauses(row.queue_pause, row.task_pause),
    }


def counted(counts: dict[State, int]) -> str:
    return ", ".join(f"{n:,}{'+' if n >= COUNT_CAP else ''} {state}" for state, n in counts.items())


def _pauses(*pauses: PauseRecord | None) -> str:
    return "; ".join(_pause(pause) for pause in pauses if pause is not None)


def _pause(pause: PauseRecord) -> str:
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    until = f" until {render.clean(pause.until)}" if pause.until else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"{'queue' if pause.scope == 'queue' else 'task'}{by}{until}{why}"


_add_verbs(queues, "queue")
_add_verbs(tasks, "task")


@command(lanes, "list")
def list_lanes(call: Call) -> None:
    """List lanes that are held or halted, and by which job."""
    call.show(
        call.app.lanes.list(),
        {
            "lane": lambda lane: lane.lane,
            "state": lambda lane: lane.state,
            "id": lambda lane: lane.id,
            "task": lambda lane: lane.task,
            "detail": lambda lane: lane.worker or render.cut(lane.error or lane.reason, 60),
        },
        empty="no lane is held or halted",
        ids=True,
    )


@command(lanes, "resume", acts=True)
def resume_lane(call: Call, lane: options.Name) -> int:
    """Resume the job that halts the lane. Exit code 4: nothing halts it."""
    job = call.operations.resume_lane(lane, actor=call.actor)
    if call.as_json:
        render.emit({"lane": lane, "id": job and job.id, "state": job and job.state})
    elif job is not None:
        print(f"{job.id} {job.state}")
    else:
        complain(f"nothing halts lane {lane!r}")
    return Exit.REFUSED if job is None else Exit.OK
