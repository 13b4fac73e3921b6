"""`app.queues`, `app.tasks` and `app.lanes`: pause, resume and list them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from leasehold.client.aio import aio
from leasehold.client.job import FindTask, Job
from leasehold.domain.pause_window import PauseOptions, PauseWindow
from leasehold.domain.records import LaneHolder, PauseRecord, QueueRow, Scope
from leasehold.domain.task_cards import TaskCard
from leasehold.operations import queues
from leasehold.operations.local import Operator

_Cards = list[TaskCard]
"""An alias, because `list` is a method below."""


class Pausable:
    """What `app.queues` and `app.tasks` have in common: pause and resume."""

    def __init__(self, operator: Operator, scope: Scope) -> None:
        self._operator = operator
        self._scope = scope

    def pause(self, name: str, **closing: Unpack[PauseOptions]) -> PauseRecord:
        """Start no jobs of it, `for_` a duration, `until` an instant, or until it is resumed. Running jobs go on.
        `explain()` shows `reason` and `actor`."""
        verb = queues.pause_queue if self._scope == "queue" else queues.pause_task
        return self._operator.call(verb, name, **PauseWindow(**closing).arguments)

    apause = aio(pause)

    def resume(self, name: str, *, actor: str | None = None) -> bool:
        """Start its jobs again. False: it was not paused."""
        verb = queues.resume_queue if self._scope == "queue" else queues.resume_task
        return self._operator.call(verb, name, actor=actor)

    aresume = aio(resume)

    def paused(self) -> list[PauseRecord]:
        """List what is paused now."""
        return [pause for pause in self._operator.call(queues.list_pauses) if pause.scope == self._scope]

    apaused = aio(paused)


class Queues(Pausable):
    """The queues."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator, "queue")

    def list(self) -> list[QueueRow]:
        """List every known task in every queue, with live workers, pauses and jobs by state."""
        return self._operator.call(queues.list_queues)

    alist = aio(list)


class Tasks(Pausable):
    """The tasks."""

    def __init__(self, operator: Operator, cards: Callable[[], _Cards]) -> None:
        super().__init__(operator, "task")
        self._cards = cards

    def list(self) -> list[TaskCard]:
        """List the tasks that can be enqueued, by name, with the JSON Schemas of their arguments and results."""
        return self._cards()

    alist = aio(list)


class Lanes:
    """The lanes."""

    def __init__(self, operator: Operator, find_task: FindTask) -> None:
        self._operator = operator
        self._find_task = find_task

    def resume(self, name: str, *, actor: str | None = None) -> Job[Any] | None:
        """Resume the job that halts the lane. None: nothing halts it."""
        row = self._operator.call(queues.resume_lane, name, actor=actor)
        return None if row is None else Job(row.id, self._operator, self._find_task, row)

    aresume = aio(resume)

    def list(self) -> list[LaneHolder]:
        """List lanes that are held or halted, each with the job that runs in it or halts it."""
        return self._operator.call(queues.list_lanes)

    alist = aio(list)
