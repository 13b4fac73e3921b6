"""`api.schedules`: what is due by itself, seen and steered at run time. They are made where the tasks are."""

from __future__ import annotations

from leasehold.remote import decode
from leasehold.remote.exchange import Answer, get, given, once, part, post
from leasehold.remote.job import Job
from leasehold.remote.transport import Line
from leasehold.remote.values import ScheduleRow


class Schedules:
    """`api.schedules`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def get(self, name: str) -> ScheduleRow:
        """Raises ScheduleNotFound."""
        return self._line.run(once(get(self._path(name)), decode.schedule))

    def pause(self, name: str, reason: str | None = None) -> ScheduleRow:
        """No ticks until it is resumed; those of the pause are not made up for."""
        ask = post(self._path(name, "/pause"), given(reason=reason))
        return self._line.run(once(ask, decode.schedule))

    def resume(self, name: str) -> bool:
        """False: it was not paused."""
        return self._line.run(once(post(self._path(name, "/resume")), decode.changed))

    def run(self, name: str) -> Job:
        """Make a job of it now, besides its ticks, whether or not the last one still lives."""
        return self._line.run(once(post(self._path(name, "/run")), self._made))

    async def aget(self, name: str) -> ScheduleRow:
        return await self._line.arun(once(get(self._path(name)), decode.schedule))

    async def apause(self, name: str, reason: str | None = None) -> ScheduleRow:
        ask = post(self._path(name, "/pause"), given(reason=reason))
        return await self._line.arun(once(ask, decode.schedule))

    async def aresume(self, name: str) -> bool:
        return await self._line.arun(once(post(self._path(name, "/resume")), decode.changed))

    async def arun(self, name: str) -> Job:
        return await self._line.arun(once(post(self._path(name, "/run")), self._made))

    async def alist(self) -> list[ScheduleRow]:
        return await self._line.arun(once(get("/v1/schedules"), decode.schedules))

    def list(self) -> list[ScheduleRow]:
        """Every schedule: its next and last tick, its last job, and whether it is paused or orphaned."""
        return self._line.run(once(get("/v1/schedules"), decode.schedules))

    def _path(self, name: str, verb: str = "") -> str:
        return f"/v1/schedules/{part(name)}{verb}"

    def _made(self, answer: Answer) -> Job:
        made = decode.made(answer)
        return Job(made.id, self._line, created=made.created)
