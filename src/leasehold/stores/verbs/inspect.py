"""Inspect: what there is, one page at a time; a list never reads a payload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from leasehold.domain.checks.ids import checked_id
from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.states import State
from leasehold.domain.views import ALL, Filter, HistoryEntry, Page, ParentResult, Relative, Summary
from leasehold.stores.base.database import Session
from leasehold.stores.base.rows import job_from_row
from leasehold.stores.verbs.writing import Verbs

LONGEST_PAGE = 500


class InspectVerbs(Verbs):
    def get(self, job_id: str) -> Job:
        rows = self._database.read(lambda session: session.rows("get_job", id=job_id))
        if not rows:
            raise JobNotFound(job_id)
        return job_from_row(rows[0])

    def list_jobs(self, filter: Filter = ALL, limit: int = 50, before: str | None = None) -> Page:
        if not 1 <= limit <= LONGEST_PAGE:
            raise InvalidInput(
                "limit", f"{limit} is out of range", f"ask for 1 to {LONGEST_PAGE} jobs a page"
            )
        given: dict[str, Any] = {
            "before": None if before is None else checked_id(before, "before"),
            "states": [state.value for state in filter.states] or None,
            "queue": filter.queue,
            "kind": filter.kind,
            "lane": filter.lane,
            "group": filter.group,
            "tag": filter.tag,
        }
        asked = {name: value for name, value in given.items() if value is not None}
        parts = ["list_jobs", *(f"list_jobs.where_{name}" for name in asked), "list_jobs.page"]
        rows = self._database.read(lambda session: session.listing(parts, limit=limit + 1, **asked))
        jobs = [_summary(row) for row in rows[:limit]]
        return Page(jobs, jobs[-1].id if len(rows) > limit else None)

    def count(self, cap: int = 10_000) -> dict[State, int]:
        def work(session: Any) -> dict[State, int]:
            return {
                state: session.rows("count_state", state=state.value, cap=cap)[0]["jobs"] for state in State
            }

        return self._database.read(work)

    def history(self, job_id: str) -> list[HistoryEntry]:
        rows = self._database.read(lambda session: session.rows("list_history", id=job_id))
        return [HistoryEntry(**row) for row in rows]

    def last_actor(self, job_id: str, events: Sequence[str]) -> str | None:
        rows = self._database.read(
            lambda session: session.tuples("find_last_actor", id=job_id, events=list(events))
        )
        return rows[0][0] if rows else None

    def count_ahead(self, job: Job, cap: int = 1000) -> int:
        def work(session: Session) -> int:
            if job.lane is not None:
                rows = session.tuples(
                    "count_ahead_in_lane", lane=job.lane, lane_at=job.lane_at, seq=job.seq, cap=cap
                )
            else:
                rows = session.tuples(
                    "count_ahead",
                    queue=job.queue,
                    gate=job.gate,
                    priority=job.priority,
                    available_at=job.available_at,
                    seq=job.seq,
                    cap=cap,
                )
            return min(cap, int(rows[0][0]))

        return self._database.read(work)

    def relatives(self, job_id: str, limit: int = 500) -> list[Relative]:
        rows = self._database.read(lambda session: session.rows("list_relatives", id=job_id, limit=limit))
        return [Relative(**{**row, "state": State(row["state"])}) for row in rows]

    def parent_results(self, job_id: str) -> list[ParentResult]:
        rows = self._database.read(lambda session: session.rows("read_parent_results", id=job_id))
        return [ParentResult(**row) for row in rows]


def _summary(row: dict[str, Any]) -> Summary:
    return Summary(
        **{
            **row,
            "state": State(row["state"]),
            "tags": tuple(json.loads(row["tags"])) if row["tags"] else (),
        }
    )
