"""Prune: what came to rest long enough ago goes, in short batches."""

from __future__ import annotations

from leasehold.domain.errors import InvalidInput
from leasehold.stores.answers import Pruned
from leasehold.stores.base.database import Records, Session
from leasehold.stores.verbs.writing import Verbs

_BY_SEQ = (
    "prune_troubles",
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
    "prune_events",
    "prune_streams",
    "prune_logs",
    "prune_dependencies",
    "prune_follow_ups",
    "prune_spending",
    "prune_budgets",
    "clear_stop_marks",
)


class PruneVerbs(Verbs):
    def prune(self, age: float, limit: int = 1000, after: str | None = None) -> Pruned:
        """Looks at outcomes in the order in which their jobs came, and ends where they came too lately to be old. One
        that was committed long after those that came behind it may be met a pass later."""
        if age < 0:
            raise InvalidInput("age", f"{age:g} s is not an age", "give a number of seconds from 0 on")
        return self._database.transact(lambda session: _prune(session, float(age), limit, int(after or 0)))


def _prune(session: Session, age: float, limit: int, after: int) -> Pruned:
    parts = ["find_old", "where_free_to_go", "find_old.page"]
    seen = session.listing(parts, age=age, limit=limit, after=after)
    old = [row["job"] for row in seen if row["old"]]
    if len(seen) < limit:
        return Pruned(_delete(session, old, age), None)
    last: int = seen[-1]["job"]
    young = session.tuples("is_young", job=last, age=age)
    return Pruned(_delete(session, old, age), None if young and young[0][0] else str(last))


def _delete(session: Session, old: list[int], age: float) -> int:
    locked = [row["seq"] for row in session.rows("lock_old", seqs=old)] if old else []
    if not locked:
        return 0
    parts = ["prune_outcomes", "where_free_to_go", "prune_outcomes.told"]
    seqs = sorted(row["job"] for row in session.listing(parts, seqs=locked, age=age))
    jobs = session.rows("prune_jobs", seqs=seqs)
    ids = sorted(job["id"] for job in jobs)
    for statement in _BY_SEQ:
        session.run(statement, seqs=seqs)
    for statement in _BY_ID:
        session.run(statement, ids=ids)
    members = [{"group_name": job["group_name"], "job": job["seq"]} for job in jobs if job["group_name"]]
    if members:
        session.run("prune_members", members=Records(members))
    return len(jobs)
