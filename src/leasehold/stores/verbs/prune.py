"""Prune: what came to rest long enough ago goes, in short batches."""

from __future__ import annotations

from datetime import UTC, datetime

from leasehold.domain.checks.ids import LOWEST_ID, make_id
from leasehold.domain.errors import InvalidInput
from leasehold.stores.answers import Pruned
from leasehold.stores.base.database import Session
from leasehold.stores.verbs.writing import Verbs

_SKEW = 86_400.0


class PruneVerbs(Verbs):
    def prune(self, age: float, limit: int = 1000, after: str | None = None) -> Pruned:
        if age < 0:
            raise InvalidInput("age", f"{age:g} s is not an age", "give a number of seconds from 0 on")

        # Ids are in time order, so what was made too lately need not be read. A day more than the age covers
        # producers whose clocks are wrong; the age itself is judged by the database's clock.
        wall = datetime.now(UTC)
        latest = max(wall, self._database.clock.now() or wall)
        bound = make_id(int((latest.timestamp() - age + _SKEW) * 1000), bytes(10))

        def work(session: Session) -> Pruned:
            seen = session.rows(
                "examine_old_jobs", age=float(age), limit=limit, after=after or LOWEST_ID, before=bound
            )
            old = [row["id"] for row in seen if row["old"]]
            ids = sorted(row["id"] for row in session.rows("prune_jobs", ids=old)) if old else []
            if ids:
                session.run("prune_history", ids=ids)
                session.run("prune_tags", ids=ids)
                session.run("prune_questions", ids=ids)
                session.run("forget_steps", ids=ids)
                session.run("forget_checkpoints", ids=ids)
                session.run("prune_events", ids=ids)
                session.run("prune_streams", ids=ids)
                session.run("prune_logs", ids=ids)
                session.run("prune_dependencies", ids=ids)
                session.run("prune_follow_ups", ids=ids)
                session.run("prune_holds", ids=ids)
                session.run("prune_spending", ids=ids)
                session.run("prune_budgets", ids=ids)
                session.run("clear_stop_marks", ids=ids)
            return Pruned(len(ids), seen[-1]["id"] if len(seen) == limit else None)

        return self._database.transact(work)
