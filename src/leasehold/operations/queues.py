"""Verbs and reads of whole queues, tasks and lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from leasehold.domain.job import Job
from leasehold.domain.limits import PauseWindow
from leasehold.domain.records import COUNT_CAP, LaneHolder, PauseRecord, QueueCount, QueueRow
from leasehold.domain.states import State
from leasehold.operations.arguments import Actor, Duration, Instant, LaneName, QueueName, Reason, TaskName
from leasehold.operations.verb import Backend, notify_workers, read, verb

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

PAUSE_EXAMPLE = {"for": "1h", "reason": "deploy"}


def pause_detail(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audit keeps of a pause. Arguments that contradict each other raise here, before the
    audit entry, so the audit does not have them."""
    closing = PauseWindow(for_=given["for_"], until=given["until"], reason=given["reason"])
    return {"reason": closing.reason, "seconds": closing.length, "until": closing.until}


@verb(
    "queue.pause",
    scope="operate",
    guard="queue",
    http="POST /v1/queues/{name}/pause",
    audit=pause_detail,
    examples=PAUSE_EXAMPLE,
)
def pause_queue(
    backend: Backend,
    name: QueueName,
    *,
    for_: Duration | None = None,
    until: Instant | None = None,
    reason: Reason = None,
    actor: Actor = None,
) -> PauseRecord:
    """Pause a queue: none of its jobs start; running jobs continue."""
    length = PauseWindow(for_=for_, until=until).length
    return backend.store.pause_scope("queue", name, actor, reason, length, until)


@verb(
    "queue.resume",
    scope="operate",
    guard="queue",
    http="POST /v1/queues/{name}/resume",
    after=notify_workers,
)
def resume_queue(backend: Backend, name: QueueName, *, actor: Actor = None) -> bool:
    """Resume a queue: its jobs start again."""
    return backend.store.resume_scope("queue", name)


@verb(
    "task.pause",
    scope="operate",
    guard="all queues",
    http="POST /v1/tasks/{name}/pause",
    audit=pause_detail,
    examples=PAUSE_EXAMPLE,
)
def pause_task(
    backend: Backend,
    name: TaskName,
    *,
    for_: Duration | None = None,
    until: Instant | None = None,
    reason: Reason = None,
    actor: Actor = None,
) -> PauseRecord:
    """Pause a task: none of its jobs start; running jobs continue."""
    length = PauseWindow(for_=for_, until=until).length
    return backend.store.pause_scope("task", name, actor, reason, length, until)


@verb(
    "task.resume",
    scope="operate",
    guard="all queues",
    http="POST /v1/tasks/{name}/resume",
    after=notify_workers,
)
def resume_task(backend: Backend, name: TaskName, *, actor: Actor = None) -> bool:
    """Resume a task: its jobs start again."""
    return backend.store.resume_scope("task", name)


@read("pauses.list", guard="rows", http="GET /v1/pauses")
def list_pauses(backend: Backend) -> list[PauseRecord]:
    """List the queues and tasks that are paused, with or without jobs."""
    return backend.store.list_pauses()


@read("queues.list", guard="rows", http="GET /v1/queues")
def list_queues(backend: Backend) -> list[QueueRow]:
    """List queues and tasks: jobs by state, live workers, pauses."""
    return queue_rows(backend.store)


@verb(
    "lane.resume",
    scope="operate",
    guard="all queues",
    http="POST /v1/lanes/{name:path}/resume",
    after=notify_workers,
)
def resume_lane(backend: Backend, lane: LaneName, *, actor: Actor = None) -> Job | None:
    """Resume the job that halts the lane, if one does."""
    return backend.store.resume_lane(lane, actor)


@read("lanes.list", guard="all queues", http="GET /v1/lanes")
def list_lanes(backend: Backend) -> list[LaneHolder]:
    """List lanes that are held or halted, and by which job."""
    return backend.store.list_lanes()


def queue_rows(store: JobStore, jobs: Iterable[QueueCount] | None = None) -> list[QueueRow]:
    """List queues and tasks in four reads, whatever their number. With `jobs` it leaves out the slowest read, the
    count."""
    counts: dict[tuple[str, str], dict[State, int]] = {gate: {} for gate in store.list_gates()}
    for one in store.count_by_queue(COUNT_CAP) if jobs is None else jobs:
        counts.setdefault((one.queue, one.task), {})[one.state] = one.jobs
    workers = [card for card in store.list_workers() if not card.draining]
    pauses = {(pause.scope, pause.name): pause for pause in store.list_pauses()}
    return [
        QueueRow(
            queue,
            task,
            sum(1 for card in workers if queue in card.queues and task in card.tasks),
            pauses.get(("queue", queue)),
            pauses.get(("task", task)),
            found,
        )
        for (queue, task), found in sorted(counts.items())
    ]
