"""What a child may ask of its worker: always about its own job, under its own lease."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from leasehold.domain.budgets import BudgetLine, Spend, Spending
from leasehold.domain.errors import LeaseLost
from leasehold.domain.job import Question
from leasehold.domain.limits import DefaultLimit
from leasehold.domain.signals import StopRequested
from leasehold.domain.stream import LOG
from leasehold.domain.views import ParentResult, Relative
from leasehold.run.attempt import Attempt
from leasehold.run.context import SyncContext
from leasehold.run.stream import LOOK_EVERY
from leasehold.stores.answers import Acquired


class Served:
    """The verbs of the store that a handler's context needs, without a lease to name: a child speaks for no other."""

    def __init__(self, run: Attempt) -> None:
        self._run = run
        self._journal = run.needed_journal()
        self._store = self._journal.store
        self._verbs: dict[str, Callable[..., object]] = {
            verb.__name__: verb
            for verb in (
                self.load_steps,
                self.save_steps,
                self.save_spent_steps,
                self.load_checkpoint,
                self.spend,
                self.budget,
                self.spending,
                self.acquire,
                self.release_slot,
                self.wake,
                self.read_question,
                self.parent_results,
                self.relatives,
                self.read_result,
                self.flush,
            )
        }

    def call(self, verb: str, args: list[Any]) -> object:
        return self._verbs[verb](*args)

    # -- what is kept ----------------------------------------------------------------------------------------------
    def load_steps(self) -> dict[str, str]:
        return self._store.load_steps(self._run.grant.id)

    def save_steps(self, steps: dict[str, str], state: str | None) -> bool:
        held = self._store.save_steps(self._run.grant.id, self._run.grant.token, steps, state)
        if not held:
            self._journal.lost(self._run)
        return held

    def save_spent_steps(self, steps: dict[str, str], spends: list[list[Any]]) -> list[BudgetLine] | None:
        grant = self._run.grant
        lines = self._store.save_spent_steps(grant.id, grant.token, grant.attempt, steps, _spends(spends))
        if lines is None:
            self._journal.lost(self._run)
        return lines

    def load_checkpoint(self) -> str | None:
        return self._store.load_checkpoint(self._run.grant.id)

    # -- what is spent and shared ----------------------------------------------------------------------------------
    def spend(self, spends: list[list[Any]]) -> list[BudgetLine]:
        grant = self._run.grant
        return self._store.spend(grant.id, grant.token, grant.attempt, _spends(spends))

    def budget(self) -> list[BudgetLine]:
        return self._store.budget(self._run.grant.id, self._run.grant.attempt)

    def spending(self) -> list[Spending]:
        return self._store.spending(self._run.grant.id)

    def acquire(self, name: str, units: int, default: dict[str, Any] | None) -> Acquired:
        grant = self._run.grant
        limit = None if default is None else DefaultLimit(**default)
        try:
            answer = self._store.acquire(grant.id, grant.token, name, units, limit)
        except LeaseLost:
            self._journal.lost(self._run)
            raise
        self._run.holds_slots |= answer.granted and answer.what == "slot"
        return answer

    def release_slot(self, name: str) -> int:
        return self._store.release_slot(self._run.grant.id, self._run.grant.attempt, name)

    def wake(self) -> None:
        self._store.wake()

    # -- what is asked and read ------------------------------------------------------------------------------------
    def read_question(self, key: str) -> Question | None:
        return self._store.read_question(self._run.grant.id, key)

    def parent_results(self) -> list[ParentResult]:
        return self._store.parent_results(self._run.grant.id)

    def relatives(self, limit: int) -> list[Relative]:
        return self._store.relatives(self._run.grant.id, limit)

    def read_result(self, job_id: str, reference: str) -> str:
        return self._store.read_result(job_id, reference)

    # -- what is told ----------------------------------------------------------------------------------------------
    def tell(self, kind: str, data: str | None, key: str | None, text: str) -> None:
        """While too much waits for the database this waits too, and so, soon, does the child."""
        run = self._run
        if kind == LOG:
            run.log_line(text.removesuffix("\n"))
            return
        with contextlib.suppress(StopRequested):  # nobody takes it any more
            while not run.tell(kind, data, key):
                if run.writer is not None and run.stream is not None:
                    run.writer.wait_for_room(run.stream, LOOK_EVERY)
                run.raise_if_stopped()

    def flush(self) -> None:
        SyncContext(self._run).flush()


def _spends(told: Sequence[Sequence[Any]]) -> list[Spend]:
    return [Spend(key, unit, amount) for key, unit, amount in told]
