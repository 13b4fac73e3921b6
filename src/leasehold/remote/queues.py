"""Whole queues, kinds and lanes on a server: closed and opened by an operator."""

from __future__ import annotations

from typing_extensions import Unpack

from leasehold.domain.records import Scope
from leasehold.remote import decode
from leasehold.remote.exchange import Answer, Ask, get, once, part, post
from leasehold.remote.job import Job
from leasehold.remote.pause_window import PauseOptions, closing_body
from leasehold.remote.transport import Line
from leasehold.remote.values import TaskCard
from leasehold.types import LaneHolder, PauseRecord, QueueRow


class Pausable:
    """What `api.queues` and `api.tasks` have in common: no claims until it is resumed."""

    _scope: Scope = "queue"

    def __init__(self, line: Line) -> None:
        self._line = line

    def pause(self, name: str, **closing: Unpack[PauseOptions]) -> PauseRecord:
        """Running jobs go on; no new ones start, `for_` a duration, `until` an instant, or until it is resumed.
        `reason` is shown to whoever asks why."""
        return self._line.run(once(self._pausing(name, closing), decode.pause(self._scope)))

    async def apause(self, name: str, **closing: Unpack[PauseOptions]) -> PauseRecord:
        return await self._line.arun(once(self._pausing(name, closing), decode.pause(self._scope)))

    def resume(self, name: str) -> bool:
        """False: it was not paused."""
        return self._line.run(once(post(self._path(name, "resume")), decode.changed))

    async def aresume(self, name: str) -> bool:
        return await self._line.arun(once(post(self._path(name, "resume")), decode.changed))

    def paused(self) -> list[PauseRecord]:
        """Those that are paused now."""
        return self._line.run(once(get("/v1/pauses"), decode.pauses(self._scope)))

    async def apaused(self) -> list[PauseRecord]:
        return await self._line.arun(once(get("/v1/pauses"), decode.pauses(self._scope)))

    def _pausing(self, name: str, closing: PauseOptions) -> Ask:
        return post(self._path(name, "pause"), closing_body(closing))

    def _path(self, name: str, verb: str) -> str:
        return f"/v1/{self._scope}s/{part(name)}/{verb}"


class Queues(Pausable):
    """`api.queues`."""

    async def alist(self) -> list[QueueRow]:
        return await self._line.arun(once(get("/v1/queues"), decode.queues))

    def list(self) -> list[QueueRow]:
        """Every task in every queue that is known, with its live workers, its pauses and what is in it."""
        return self._line.run(once(get("/v1/queues"), decode.queues))


class Tasks(Pausable):
    """`api.tasks`."""

    _scope: Scope = "task"

    async def alist(self) -> list[TaskCard]:
        return await self._line.arun(once(get("/v1/tasks"), decode.tasks))

    def list(self) -> list[TaskCard]:
        """The tasks that can be enqueued there, with the JSON Schemas of their arguments."""
        return self._line.run(once(get("/v1/tasks"), decode.tasks))


class Lanes:
    """`api.lanes`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def resume(self, name: str) -> Job | None:
        """Resume the job that halts the lane. None: nothing halts it."""
        return self._line.run(once(post(f"/v1/lanes/{part(name)}/resume"), self._resumed))

    async def aresume(self, name: str) -> Job | None:
        return await self._line.arun(once(post(f"/v1/lanes/{part(name)}/resume"), self._resumed))

    async def alist(self) -> list[LaneHolder]:
        return await self._line.arun(once(get("/v1/lanes"), decode.lanes))

    def list(self) -> list[LaneHolder]:
        """Lanes that are held or stand still, each with the job that runs in it or halts it."""
        return self._line.run(once(get("/v1/lanes"), decode.lanes))

    def _resumed(self, answer: Answer) -> Job | None:
        row = decode.job_or_none(answer)
        return None if row is None else Job(row.id, self._line, row)
