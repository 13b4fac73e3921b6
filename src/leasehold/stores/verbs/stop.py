"""Stop: find what a scope covers, move it in short transactions, and remember which runs were told.

Finding is a read and locks nothing; each batch is decided under its rows' locks, so a job that was claimed meanwhile is
flagged instead of cancelled, and one that has ended is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leasehold.domain.checks.ids import LOWEST_ID
from leasehold.domain.moves import Move
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode, StoppedJob, StopScope, decide
from leasehold.stores.answers import Stoppable
from leasehold.stores.base.database import Session
from leasehold.stores.verbs.writing import Verbs, lock, write

PAGE = 10_000
"""Jobs that one look reads; they are moved in smaller batches."""
HIGHEST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class StopVerbs(Verbs):
    def find_stoppable(self, scope: StopScope, before: str | None = None, running: bool = False) -> Stoppable:
        return self._database.read(lambda session: _find(session, scope, before or HIGHEST_ID, running))

    def stop_jobs(
        self,
        ids: Sequence[str],
        scope: StopScope,
        mode: StopMode,
        actor: str | None = None,
        reason: str | None = None,
    ) -> list[StoppedJob]:
        def work(session: Session) -> list[StoppedJob]:
            jobs, now = lock(session, ids)
            if now is None:
                return []
            decided = (decide(job, mode, now=now, actor=actor, reason=reason) for job in jobs.values())
            moves: list[Move] = [move for move in decided if move is not None]
            running = sorted(move.job.id for move in moves if move.before.state is State.RUNNING)
            if running:
                session.run("mark_stopped", ids=running, scope=scope.dump(), reason=reason, actor=actor)
            write(session, moves, now)
            return [StoppedJob(move.job.id, move.job.kind, move.before.state) for move in moves]

        return self._database.transact(work)

    def still_running(self, ids: Sequence[str]) -> list[str]:
        rows = self._database.read(lambda session: session.tuples("still_running", ids=sorted(ids)))
        return [row[0] for row in rows]


def _find(session: Session, scope: StopScope, before: str, running: bool) -> Stoppable:
    where: dict[str, Any] = {
        "group": scope.group,
        "queue": scope.queue,
        "kinds": None if scope.kinds is None else list(scope.kinds),
        "lane": scope.lane,
        "tags": list(scope.tags) or None,
    }
    asked = {name: value for name, value in where.items() if value is not None}
    way, served = _way(scope, running)
    given: dict[str, Any] = {"before": before, "limit": PAGE, **asked}
    if scope.tags:
        given |= {"tag": scope.tags[0], "tag_count": len(set(scope.tags))}
    after = None
    if way == "find_stoppable":
        window = session.tuples("stop_window", before=before, size=PAGE - 1)
        after = window[0][0] if window else None
        given["since"] = after or LOWEST_ID
    parts = [
        way,
        *(f"find_stoppable.where_{name}" for name in asked if name != served),
        "find_stoppable.page",
    ]
    rows = session.listing(parts, **given)
    jobs = [StoppedJob(row["id"], row["kind"], State(row["state"])) for row in rows]
    if way != "find_stoppable":
        after = jobs[-1].id if len(jobs) == PAGE else None
    return Stoppable(jobs, after)


def _way(scope: StopScope, running: bool) -> tuple[str, str | None]:
    """The statement that reads the least, and the criterion that it serves by itself."""
    if running:
        return "find_stoppable.running", None
    if scope.group is not None:
        return "find_stoppable.in_group", "group"
    if scope.lane is not None:
        return "find_stoppable.in_lane", "lane"
    if scope.tags:
        return "find_stoppable.with_tag", "tags" if len(set(scope.tags)) == 1 else None
    return "find_stoppable", None
