"""Inspect: reads jobs, lists them page by page without payloads, and searches their texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from leasehold.domain.checks.ids import checked_id, range_of, shortened
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.dependencies import FlowEdge, FlowNode, Tie
from leasehold.domain.errors import JobNotFound
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.policy import Policy
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
from leasehold.domain.search import (
    MOST_FAILURES,
    MOST_LOOKED,
    SLACK,
    FailedJob,
    Needles,
    Search,
    SearchPage,
    first_line,
    is_found,
    needles_of,
)
from leasehold.domain.states import State
from leasehold.stores.database.database import Row, Session
from leasehold.stores.database.places import job_from_row, record_of, records_of, tags_of
from leasehold.stores.results import FailedPage
from leasehold.stores.verbs.writing import Verbs, reading

# -- walks -------------------------------------------------------------------------------------------------------------
# Every criterion that an index serves is a way by itself. The other criteria are conditions on a way: such a
# walk reads a bounded number of rows and returns where to go on.

ABOVE_EVERY_NUMBER = 2**63 - 1
"""Greater than the number (seq) of any job."""
FIRST_WINDOW = 1000
"""Rows that a walk reads first: they usually fill the page. For so few rows, a server uses an index even
before it has statistics of the table."""

FETCH_WINDOW = 2500
"""Rows that a walk looks at when it has to fetch the job of each: that costs several times as much as the row."""


@frozen
class Way:
    """One way to find jobs."""

    name: str
    serves: frozenset[str] = frozenset()
    """Criteria that need no condition here."""
    always: tuple[str, ...] = ()
    """Conditions that this way always has."""
    brings_job: bool = False
    ordered: bool = True
    """Whether it reads the numbers in order and can stop early. Otherwise all of it is read and sorted."""


JOBS = Way("jobs", brings_job=True)
QUEUED, LANES = Way("queued"), Way("lanes", ordered=False)
GATED = Way("gated", brings_job=True, ordered=False)
GATED_LANES = Way("gated_lanes", brings_job=True, ordered=False)
RUNNING, ORPHANS = Way("running"), Way("orphans")
PENDING, WAITING, PAUSED = Way("pending"), Way("waiting"), Way("paused")
IN_LANE = Way("in_lane", frozenset({"lane"}), ordered=False)
LANE_HOLDERS = Way("lane_holders", frozenset({"lane"}), ordered=False)
MEMBERS = Way("members", frozenset({"group"}))
TAGGED = Way("tagged", brings_job=True, ordered=False)
IDS = Way("ids", frozenset({"ids"}), brings_job=True, ordered=False)

BY_STATE: dict[State, tuple[Way, ...]] = {
    State.QUEUED: (QUEUED, LANES),
    State.RUNNING: (RUNNING, ORPHANS),
    State.PENDING: (PENDING,),
    State.WAITING: (WAITING,),
    State.PAUSED: (PAUSED,),
    State.SUCCEEDED: (Way("ended", always=("succeeded",)),),
    State.CANCELLED: (Way("cancelled"),),
    State.FAILED: (Way("failed"),),
    State.TIMED_OUT: (Way("timed_out"),),
}

_IN_THE_JOB = frozenset({"queue", "tasks", "lane", "group", "tags", "ids", "created_since", "created_until"})


class Walked(NamedTuple):
    rows: list[Row]
    more: str | None
    """The id of the job to go on from, if the walk had to stop before the end."""


@frozen
class Walk:
    session: Session
    criteria: Mapping[str, Any]
    """Criteria for every job: `queue`, `tasks`, `lane`, `group`, `tags`, `states`, `live`; `ids` (the lowest
    and the highest), `created_since`, `created_until`."""
    size: int
    """How many rows each way may read."""
    floor: int = 0
    top: int = ABOVE_EVERY_NUMBER
    """The walk reads numbers from `floor` on and below `top`."""

    def ways_to(self, states: Sequence[State]) -> list[Way]:
        ways = [way for state in dict.fromkeys(states) for way in BY_STATE[state]]
        if QUEUED not in ways:
            return ways
        if "lane" in self.criteria:
            # A job queued in a lane is nowhere else.
            return [IN_LANE if way is LANES else way for way in ways if way is not QUEUED]
        if self.criteria and self.criteria.keys() <= {"queue", "tasks"}:
            # Of all criteria, a gate stores only its jobs' queue and task.
            few = self._few("walk.gated", "walk.where", *(f"walk.where_{name}" for name in self.criteria))
            gated = {QUEUED: GATED if few else QUEUED, LANES: GATED_LANES}
            return [gated.get(way, way) for way in ways]
        return ways

    def few_tagged(self) -> bool:
        """Whether the jobs with the (first) tag are few enough to be read and sorted."""
        return self._few("walk.tag")

    def few_ids(self) -> bool:
        """As `few_tagged`, for the jobs whose ids are in the range."""
        return self._few("walk.id_range")

    def go(
        self, head: str, ways: Sequence[Way], tail: str, limit: int, before: str | None, **values: Any
    ) -> Walked:
        """Read one page, with each job as it was when found. `values` are parameters of the head."""
        below = self.top
        if before is not None:
            below = min(below, self.session.rows("find_cursor", before=before)[0]["below"])
        branches = [[f"walk.{way.name}", *self._conditions(way), "walk.cut"] for way in ways]
        parts = [head, *_either(branches), tail]
        found: list[Row] = []
        left = step = self.size
        if all(way.ordered for way in ways):
            step = FIRST_WINDOW
            if any(self._needs_job(way) for way in ways):
                left = min(left, FETCH_WINDOW)
        while True:
            step = min(step, left)
            since, more = self._window(ways, below, step)
            bounds = {"below": below, "since": since, "limit": limit - len(found)}
            found += self.session.listing(parts, **self._values() | bounds | values)
            left -= step
            if more is None or not left or len(found) == limit:
                return Walked(found, more)
            below, step = since, 2 * step

    def _conditions(self, way: Way) -> list[str]:
        join = ["walk.with_job"] if self._needs_job(way) else []
        return [*join, "walk.where", *(f"walk.where_{name}" for name in (*way.always, *self._open_to(way)))]

    def _open_to(self, way: Way) -> list[str]:
        """The criteria that this way does not serve."""
        return [name for name in self.criteria if not self._serves(way, name)]

    def _needs_job(self, way: Way) -> bool:
        return not way.brings_job and not _IN_THE_JOB.isdisjoint(self._open_to(way))

    def _serves(self, way: Way, criterion: str) -> bool:
        if way is TAGGED and criterion == "tags":
            return len(set(self.criteria["tags"])) == 1
        return criterion in way.serves

    def _window(self, ways: Sequence[Way], below: int, size: int) -> tuple[int, str | None]:
        """The number and id at which all ways stop, because one of them has read `size` rows by then."""
        picky = [way for way in ways if way.ordered and (way.always or self.criteria.keys() - way.serves)]
        if not picky:
            return self.floor, None
        branches = [[f"walk.{way.name}", "walk.past"] for way in picky]
        values = self._values() | {"below": below, "since": self.floor, "size": size - 1}
        (row,) = self.session.listing(["walk.window", *_either(branches), "walk.window_end"], **values)
        return (self.floor, None) if row["number"] is None else (row["number"], row["id"])

    def _few(self, *parts: str) -> bool:
        values = self._values() | {"below": ABOVE_EVERY_NUMBER, "since": 0, "size": self.size}
        rows = self.session.listing(["walk.size", *parts, "walk.size_end"], **values)
        return bool(rows[0]["jobs"] < self.size)

    def _values(self) -> dict[str, Any]:
        tags, ids = self.criteria.get("tags"), self.criteria.get("ids")
        return {
            **self.criteria,
            **({"tag": tags[0], "tag_count": len(set(tags))} if tags else {}),
            **({"low": ids[0], "high": ids[1]} if ids else {}),
        }


def _either(branches: Sequence[Sequence[str]]) -> list[str]:
    first, *others = branches
    return [*first, *(part for branch in others for part in ("walk.or", *branch))]


# -- inspect -----------------------------------------------------------------------------------------------------------

WINDOW = 20_000
"""Rows that a page reads at most if no index serves its filter."""


class InspectVerbs(Verbs):
    """Read jobs."""

    def get(self, job_id: str) -> Job:
        """The job. Raises JobNotFound."""
        rows = self._rows("get_job", id=job_id)
        if not rows:
            raise JobNotFound(job_id)
        return job_from_row(rows[0])

    def list_jobs(self, filter: Filter = ALL, limit: int = 50, cursor: str | None = None) -> Page:
        """Jobs by the order of arrival, newest first; `cursor` is the last page's `next`. For filters that no index
        serves (a queue, a task, a lane; successes among many failures) a page reads a bounded number of rows: it may
        hold fewer jobs than `limit`, or none, and still have a `next`."""
        check_page(limit)
        before = None if cursor is None else checked_id(cursor, "cursor")
        rows, more = self._database.read(lambda session: _list(session, filter, limit + 1, before))
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
    session: Session, filter: Filter, size: int, floor: int = 0, top: int = ABOVE_EVERY_NUMBER, **more: Any
) -> tuple[Walk, list[Way]]:
    """The walk and ways for a filter and for `more` criteria that every job must meet (None: no criterion)."""
    given = {
        "queue": filter.queue,
        "tasks": None if filter.task is None else [filter.task],
        "lane": filter.lane,
        "group": filter.group,
        "tags": None if filter.tag is None else [filter.tag],
        **more,
    }
    criteria: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    walk = Walk(session, criteria, size, floor, top)
    ways = _ways(walk, filter)
    if filter.states and ways[0] in (MEMBERS, TAGGED, IDS):
        walk = replace(walk, criteria={**criteria, "states": [state.value for state in filter.states]})
    return walk, ways


def _ways(walk: Walk, filter: Filter) -> list[Way]:
    if "ids" in walk.criteria and walk.few_ids():
        return [IDS]
    if filter.group is not None:
        return [MEMBERS]
    if filter.tag is not None and walk.few_tagged():
        return [TAGGED]
    return walk.ways_to(filter.states) if filter.states else [JOBS]


def summary_of(row: Row) -> Summary:
    return record_of(Summary, row, state=State(row["state"]), tags=tags_of(row["tags"]))


# -- search ------------------------------------------------------------------------------------------------------------
# A page reads a bounded number of jobs.

SEARCH_ROUND = 2000
"""Jobs whose texts one statement searches: they usually fill the page."""
SEARCH_ROUNDS = MOST_LOOKED // SEARCH_ROUND
ROUND_WINDOW = 10_000
"""Rows that a round reads to find these jobs, if no index serves the filter."""


class SearchVerbs(Verbs):
    """Search jobs and their errors."""

    def search_jobs(self, search: Search, limit: int = 50, cursor: str | None = None) -> SearchPage:
        """Jobs that match, newest first; `cursor` is the last page's `next`. The text is searched in at most 10,000 of
        the jobs that the other criteria find, and never in sensitive arguments."""
        check_page(limit)
        before = None if cursor is None else checked_id(cursor, "cursor")
        return self._database.read(lambda session: _search(session, search, limit, before))

    def find_failures(self, filter: Filter, limit: int = 1000, before: str | None = None) -> FailedPage:
        """Failed and timed-out jobs, newest first, with the beginning of their errors. The filter names the states."""
        check_page(limit, MOST_FAILURES)

        def work(session: Session) -> FailedPage:
            walk, ways = walk_of(session, filter, WINDOW)
            rows, more = walk.go("list_failures", ways, "list_failures.page", limit + 1, before)
            jobs = [record_of(FailedJob, row) for row in rows[:limit]]
            return FailedPage(jobs, jobs[-1].id if len(rows) > limit else more)

        return self._database.read(work)


def _search(session: Session, search: Search, limit: int, before: str | None) -> SearchPage:
    if search.text is not None:
        return _search_text(session, search, needles_of(search.text), limit, before)
    walk, ways = _walk(session, search, WINDOW)
    rows, more = walk.go("list_jobs", ways, "list_jobs.page", limit + 1, before)
    jobs = [summary_of(row) for row in rows[:limit]]
    return SearchPage(jobs, jobs[-1].id if len(rows) > limit else more, len(jobs))


def _search_text(
    session: Session, search: Search, needles: Needles, limit: int, before: str | None
) -> SearchPage:
    """Search round by round, until the page is full or SEARCH_ROUNDS are over."""
    walk, ways = _walk(session, search, ROUND_WINDOW)
    numbers: list[int] = []
    looked = 0
    for _ in range(SEARCH_ROUNDS):
        rows, more = walk.go(
            "search_text", ways, "search_text.page", SEARCH_ROUND, before, **needles._asdict()
        )
        before = rows[-1]["id"] if len(rows) == SEARCH_ROUND else more
        found = _beyond_doubt(session, rows, needles)[: limit - len(numbers)]
        numbers += found
        if len(numbers) == limit:
            last = next(at for at, row in enumerate(rows, 1) if row["number"] == found[-1])
            looked += last
            before = rows[last - 1]["id"] if last < len(rows) else before
            break
        looked += len(rows)
        if before is None:
            break
    return SearchPage(_summaries(session, numbers, search.filter), before, looked)


def _beyond_doubt(session: Session, rows: Sequence[Row], needles: Needles) -> list[int]:
    """The numbers of the jobs that have the text where readers may see it: not in sensitive arguments."""
    found = [row for row in rows if row["found"]]
    doubtful = [row["number"] for row in found if row["doubtful"]]
    if not doubtful:
        return [row["number"] for row in found]
    shown = {
        row["number"]
        for row in session.rows("read_texts", numbers=doubtful)
        if is_found(needles, row["args"], Policy.load(row["policy"]).sensitive, row["error"])
    }
    return [row["number"] for row in found if not row["doubtful"] or row["number"] in shown]


def _summaries(session: Session, numbers: list[int], filter: Filter) -> list[Summary]:
    """The jobs' summaries, without jobs that have left the filter's states since they were found."""
    if not numbers:
        return []
    parts = ("list_jobs", "search.numbers", "list_jobs.page")
    jobs = [summary_of(row) for row in session.listing(parts, numbers=numbers, limit=len(numbers))]
    return [job for job in jobs if not filter.states or job.state in filter.states]


def _walk(session: Session, search: Search, size: int) -> tuple[Walk, list[Way]]:
    """A walk through the numbers of the search's time span, widened by SLACK."""
    since, until = search.since, search.until
    return walk_of(
        session,
        search.filter,
        size,
        0 if since is None else _number_after(session, since - SLACK),
        ABOVE_EVERY_NUMBER if until is None else _number_after(session, until + SLACK),
        ids=None if search.id_prefix is None else range_of(search.id_prefix),
        created_since=since,
        created_until=until,
    )


def _number_after(session: Session, at: datetime) -> int:
    """A number above those of all jobs that were created by then."""
    return min(ABOVE_EVERY_NUMBER, int(session.rows("find_number_at", at=at)[0]["number"]) + 1)
