"""Prune: deletes jobs that ended long enough ago, and empty groups, in short batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from leasehold.domain.errors import InvalidInput
from leasehold.domain.retention import Ages, Retention
from leasehold.domain.states import State
from leasehold.stores.database.database import Records, Row, Session
from leasehold.stores.database.places import ENDED_STATES
from leasehold.stores.results import Pruned
from leasehold.stores.verbs.results import ResultVerbs

_STATES = {number: state for state, number in ENDED_STATES.items()}
_BY_SEQ = (
    "prune_result_pieces",
    "prune_failure_states",
    "prune_attempts",
    "prune_executions",
    "prune_time_limits",
    "prune_lease_slots",
    "prune_slot_holds",
)
_BY_ID = (
    "prune_history",
    "prune_tags",
    "prune_questions",
    "forget_steps",
    "forget_checkpoints",
    "prune_updates",
    "prune_streams",
    "prune_logs",
    "prune_dependencies",
    "prune_follow_ups",
    "prune_spending",
    "prune_budgets",
    "clear_stop_marks",
)


class PruneVerbs(ResultVerbs):
    """Delete old jobs and groups."""

    def prune(
        self,
        keep: float | Retention,
        limit: int = 1000,
        after: str | None = None,
        *,
        unique_for_ever: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        """Read the next `limit` ended jobs in the order of arrival, up to jobs that are too recent, and delete those
        that ended longer ago than they are kept. A job that was committed long after later jobs may be found one pass
        later. Never deleted: a job that halts a lane, belongs to a live group, or is a parent of a job that has not
        ended for good. A job that holds a unique key forever goes only with `unique_for_ever`, which frees the key. A
        group goes with its last job unless it is on hold or has a limit. With `dry_run` nothing is deleted."""
        if not isinstance(keep, Retention):
            if keep < 0:
                raise InvalidInput("age", f"{keep:g} s is not an age", "give a number of seconds from 0 on")
            keep = Retention.after(float(keep))
        batch = _Batch(keep, unique_for_ever)
        if dry_run:
            return self._database.read(lambda session: batch.look(session, limit, int(after or 0))[0])
        pruned, files = self._database.transact(lambda session: batch.prune(session, limit, int(after or 0)))
        self._remove_results(files)
        return pruned

    def prune_groups(self, limit: int = 1000, after: str | None = None, *, dry_run: bool = False) -> Pruned:
        """Read the next `limit` groups by name and delete those without a job, with their budgets and limits. A group
        on hold stays."""

        def work(session: Session) -> Pruned:
            names = [row[0] for row in session.tuples("page_groups", after=after or "", limit=limit)]
            empty = [row[0] for row in session.tuples("empty_groups", names=names, budgets=True)]
            gone = len(empty) if dry_run else _delete_groups(session, empty, budgets=True)
            return Pruned(0, names[-1] if len(names) == limit else None, groups=gone)

        return self._database.read(work) if dry_run else self._database.transact(work)

    def set_retention(self, rules: Mapping[str, Ages]) -> None:
        """Store how long jobs of these tasks are kept, as their code says; an empty rule removes a task's rule. The
        rules apply to every pruner of this store."""
        rows = [
            {"task": task, "state": ENDED_STATES[state], "seconds": age}
            for task, ages in sorted(rules.items())
            for state, age in ages.items()
        ]

        def work(session: Session) -> None:
            session.run("drop_retention", tasks=sorted(rules))
            if rows:
                session.run("insert_retention", rules=Records(rows))

        wanted = {task: dict(ages) for task, ages in rules.items()}
        found = self.retention()
        if any(found.get(task, {}) != ages for task, ages in wanted.items()):
            self._database.transact(work)

    def retention(self) -> dict[str, dict[State, float | None]]:
        """The rules of `set_retention`, by task."""
        found: dict[str, dict[State, float | None]] = {}
        for task, state, age in self._tuples("list_retention"):
            found.setdefault(task, {})[_STATES[state]] = age
        return found


class _Batch:
    """One page of outcomes, pruned by these rules."""

    def __init__(self, retention: Retention, unique_for_ever: bool) -> None:
        self._retention = retention
        self._keys = unique_for_ever

    def look(self, session: Session, limit: int, after: int) -> tuple[Pruned, list[Row]]:
        """Find the jobs to delete; returns their counts and their outcome rows."""
        youngest = self._retention.youngest
        if youngest is None:
            return Pruned(0, None), []
        parts = ["find_old", "where_free_to_go", "find_old.page"]
        seen = session.listing(parts, keys=self._keys, limit=limit, after=after)
        old = self._old(seen)
        more = None
        if len(seen) == limit:
            last: int = seen[-1]["job"]
            young = session.tuples("is_young", job=last, age=youngest)
            more = None if young and young[0][0] else str(last)
        return Pruned(len(old), more, _counts(old)), old

    def prune(self, session: Session, limit: int, after: int) -> tuple[Pruned, list[str]]:
        """Delete one page of jobs; returns their counts and the names of their result files."""
        looked, old = self.look(session, limit, after)
        locked = (
            [row["seq"] for row in session.rows("lock_old", seqs=[row["job"] for row in old])] if old else []
        )
        if not locked:
            return Pruned(0, looked.next), []
        # Read again under the lock: a job may have been resumed since, or another job may wait for it now.
        parts = ["find_old", "where_free_to_go", "find_old.locked"]
        old = self._old(session.listing(parts, keys=self._keys, seqs=locked))
        groups = _delete(session, old) if old else 0
        files = [row["result_ref"] for row in old if row["result_ref"] is not None]
        return replace(looked, deleted=len(old), counts=_counts(old), groups=groups), files

    def _old(self, rows: Sequence[Row]) -> list[Row]:
        over = self._retention.is_over
        return [row for row in rows if row["free"] and over(row["task"], _STATES[row["state"]], row["age"])]


def _counts(rows: Sequence[Row]) -> dict[tuple[str, State], int]:
    return dict(Counter((row["task"], _STATES[row["state"]]) for row in rows))


def _delete(session: Session, old: Sequence[Row]) -> int:
    """Delete these jobs with all their rows; returns how many groups went with them."""
    seqs = sorted(row["job"] for row in old)
    session.run("prune_outcomes", seqs=seqs)
    jobs = session.rows("prune_jobs", seqs=seqs)
    ids = sorted(job["id"] for job in jobs)
    for statement in _BY_SEQ:
        session.run(statement, seqs=seqs)
    for statement in _BY_ID:
        session.run(statement, ids=ids)
    keys = [
        {"task": job["task"], "key": job["unique_key"], "job_id": job["id"]}
        for job in jobs
        if job["unique_for_ever"] and job["unique_key"] is not None
    ]
    if keys:
        session.run("drop_keys_for_ever", rows=Records(keys))
    members = [{"group_name": job["group_name"], "job": job["seq"]} for job in jobs if job["group_name"]]
    if not members:
        return 0
    session.run("prune_members", members=Records(members))
    names = sorted({member["group_name"] for member in members})
    empty = [row[0] for row in session.tuples("empty_groups", names=names, budgets=False)]
    return _delete_groups(session, empty, budgets=False)


def _delete_groups(session: Session, names: Sequence[str], budgets: bool) -> int:
    """Delete groups that are still empty: jobs may enter one at any time, and count themselves in its row."""
    if not names:
        return 0
    gone = [row[0] for row in session.tuples("prune_groups", names=names)]
    session.run("prune_group_budgets", names=gone)
    return len(gone)
