"""Inspect: what there is, one page at a time; a list never reads a payload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leasehold.domain.checks.ids import checked_id, range_of, shortened
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.errors import JobNotFound
from leasehold.domain.failures import first_line
from leasehold.domain.flow import FlowEdge, FlowNode, Tie
from leasehold.domain.job import Job
from leasehold.domain.records import (
    ALL,
    AttemptRecord,
    Filter,
    HistoryEntry,
    Page,
    ParentResult,
    Relation,
    Relative,
    StepRecord,
    Summary,
)
from leasehold.domain.states import State
from leasehold.stores.database.attempts import records_of
from leasehold.stores.database.database import Row, Session
from leasehold.stores.database.rows import job_from_row, record_of, tags_of
from leasehold.stores.verbs.list_plans import IDS, JOBS, MEMBERS, TAGGED, TOP, Walk, Walked, Way
from leasehold.stores.verbs.writing import Verbs, reading

WINDOW = 20_000
"""Rows that a page looks at where no index serves its filter."""


class InspectVerbs(Verbs):
    """Read jobs."""

    def get(self, job_id: str) -> Job:
        """The job. Raises JobNotFound."""
        rows = self._rows("get_job", id=job_id)
        if not rows:
            raise JobNotFound(job_id)
        return job_from_row(rows[0])

    def list_jobs(self, filter: Filter = ALL, limit: int = 50, before: str | None = None) -> Page:
        """Jobs by the order of arrival, newest first; `before` is the last page's `next`. For filters that no index
        serves (a queue, a task, a lane; successes among many failures) a page reads a bounded number of rows: it may
        hold fewer jobs than `limit`, or none, and still have a `next`."""
        check_page(limit)
        after = None if before is None else checked_id(before, "cursor")
        rows, more = self._database.read(lambda session: _list(session, filter, limit + 1, after))
        jobs = [summary_of(row) for row in rows[:limit]]
        return Page(jobs, jobs[-1].id if len(rows) > limit else more)

    def find_ids(self, prefix: str, limit: int = 6) -> list[str]:
        """Job ids that begin with the prefix, in order."""
        low, high = range_of(prefix)
        return [row[0] for row in self._tuples("find_ids_between", low=low, high=high, limit=limit)]

    def short_ids(self, ids: Sequence[str]) -> dict[str, str]:
        """The shortest beginning of each id that no other job's id shares, at least its time part."""
        rows = self._tuples("find_neighbours", ids=list(ids))
        return {job_id: shortened(job_id, before, after) for job_id, before, after in rows}

    def count(self, cap: int = 10_000) -> dict[State, int]:
        """The number of jobs by state, each counted up to `cap`."""
        counts = dict.fromkeys(State, 0)
        for row in self._rows("count_states", cap=cap):
            state = State(row["state"])
            counts[state] = min(cap, counts[state] + row["jobs"])
        return counts

    def history(self, job_id: str) -> list[HistoryEntry]:
        """The job's history, oldest first."""
        return [HistoryEntry(**row) for row in self._rows("list_history", id=job_id)]

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """The job's attempts, oldest first, including the present or last one."""

        def work(session: Session) -> tuple[list[Row], list[Row]]:
            return session.rows("list_attempts", id=job_id), session.rows("list_history", id=job_id)

        return records_of(*self._database.read(work))

    def steps(self, job_id: str) -> list[StepRecord]:
        """The steps that the job's attempts kept, in the order in which they were kept."""
        rows = self._rows("list_steps", id=job_id)
        return [StepRecord(**{**row, "result": json.loads(row["result"])}) for row in rows]

    def last_actor(self, job_id: str, events: Sequence[str]) -> str | None:
        """The actor of the last of these events in the job's history."""
        rows = self._tuples("find_last_actor", id=job_id, events=list(events))
        return rows[0][0] if rows else None

    @reading
    def count_ahead(self, session: Session, job: Job, cap: int = 1000) -> int:
        """The number of due jobs that a claim from the job's queue would take first, or of jobs before it in its lane.
        Behind each gate, and in the lane, the first `cap` jobs are read."""
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

    def relatives(self, job_id: str, limit: int = 500) -> list[Relative]:
        """The jobs that this job waits for (unmet first), the jobs that wait for it, the job it follows, and its
        follow-ups."""
        rows = self._rows("list_relatives", id=job_id, limit=limit)
        return [record_of(Relative, row, state=State(row["state"])) for row in rows]

    def count_relatives(self, job_id: str) -> dict[Relation, int]:
        """The number of the job's relatives by relation."""
        rows = self._tuples("count_relatives", id=job_id)
        return {relation: int(count) for relation, count in rows if count}

    def ties(self, ids: Sequence[str], limit: int = 1000) -> list[Tie]:
        """Which jobs wait for which and which follow which, among the ties of these jobs: up to `limit` of each
        relation to earlier jobs, and as many to later jobs."""
        return [_tie(row) for row in self._rows("list_ties", ids=list(ids), limit=limit)]

    def parent_results(self, job_id: str) -> list[ParentResult]:
        """The results of the job's parents that have succeeded, in the order of `after`."""
        return [record_of(ParentResult, row) for row in self._rows("read_parent_results", id=job_id)]


def _tie(row: Row) -> Tie:
    edge = FlowEdge(row["parent_id"], row["child_id"], row["relation"], row["met"])
    error = row["error"]
    return Tie(
        edge, FlowNode(row["id"], row["task"], State(row["state"]), first_line(error) if error else None)
    )


def _list(session: Session, filter: Filter, limit: int, before: str | None) -> Walked:
    walk, ways = walk_of(session, filter, WINDOW)
    return walk.go("list_jobs", ways, "list_jobs.page", limit, before)


def walk_of(
    session: Session, filter: Filter, size: int, floor: int = 0, top: int = TOP, **more: Any
) -> tuple[Walk, list[Way]]:
    """How to find jobs by a filter, and by `more` criteria that every job must meet (None: no criterion)."""
    given = {
        "queue": filter.queue,
        "tasks": None if filter.task is None else [filter.task],
        "lane": filter.lane,
        "group": filter.group,
        "tags": None if filter.tag is None else [filter.tag],
        **more,
    }
    requested: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    walk = Walk(session, requested, size, floor, top)
    ways = _ways(walk, filter)
    if filter.states and ways[0] in (MEMBERS, TAGGED, IDS):
        walk = replace(walk, requested={**requested, "states": [state.value for state in filter.states]})
    return walk, ways


def _ways(walk: Walk, filter: Filter) -> list[Way]:
    if "ids" in walk.requested and walk.few_ids():
        return [IDS]
    if filter.group is not None:
        return [MEMBERS]
    if filter.tag is not None and walk.few_tagged():
        return [TAGGED]
    return walk.ways_to(filter.states) if filter.states else [JOBS]


def summary_of(row: Row) -> Summary:
    return record_of(Summary, row, state=State(row["state"]), tags=tags_of(row["tags"]))
