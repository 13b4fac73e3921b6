"""Budgets during an attempt: what it spends, and what it may still spend. Blocking, as the steps are.

Outside of a step, a spend is written when `spend` returns. Inside a step it is kept, counted, and committed with the
step's result; if the step fails, the spend is written alone, because it was spent in any case.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from leasehold.domain.budgets import BudgetLine, Spend, checked_amounts, halts, total
from leasehold.domain.checks.texts import checked_name
from leasehold.domain.errors import JobNotFound, OverBudget
from leasehold.domain.job import Grant
from leasehold.domain.policy import Policy
from leasehold.domain.signals import StopRequested
from leasehold.run.state import RunState

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")


class Spender:
    """A step whose function is being called. It keeps the function's spends until they are written."""

    def __init__(self) -> None:
        self.run: RunState | None = None
        """The attempt of the step, once the step has begun."""
        self.spends: Sequence[Spend] = ()
        self.ended = False

    def take_spends(self) -> Sequence[Spend]:
        spends, self.spends = self.spends, ()
        return spends


current_step: ContextVar[Spender | None] = ContextVar("leasehold_step", default=None)
"""The step whose function is being called, here or in tasks and threads that it started."""


class RunSpending:
    def __init__(self, attempt: RunState, store: JobStore) -> None:
        self._attempt = attempt
        self._store = store
        self._policy = Policy.load(attempt.grant.policy)
        self.held: list[Spend] | None = None
        """Spends while `ctx.complete` has its transaction open: they are committed with it."""
        self._lines: dict[tuple[str, str], BudgetLine] = {}
        self._loaded = False
        self._kept: list[Spend] = []
        """Spends of a step or a transaction that is not committed yet."""
        self._loose: list[Spend] = []
        """Spends to be written alone, as soon as the database takes them."""
        self._written_keys: set[tuple[str, str]] | None = set() if attempt.grant.attempt == 1 else None
        """Keys and units in the ledger, as far as this attempt needs them; None: not read yet."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    # -- spend -----------------------------------------------------------------------------------------------------
    def spend(self, amounts: Mapping[str, Any], key: str | None) -> None:
        """Record the amounts, then raise if they exceed the budget."""
        checked = checked_amounts(amounts, "spend")
        # A generated key, so that a repeat after a lost reply counts once.
        named = secrets.token_hex(12) if key is None else checked_name(key, "key")
        spends = [Spend(named, unit, amount) for unit, amount in checked.items()]
        step = current_step.get()
        if step is not None and (step.ended or step.run is not self._attempt):
            step = None
        if step is None and self.held is None:
            self._write_alone(spends)
        else:
            self._keep(step, spends, key is not None)
        self._check(checked)

    def _keep(self, step: Spender | None, spends: list[Spend], keyed: bool) -> None:
        self.load()
        if keyed:
            spends = self._unknown(spends)
        with self._lock:
            self._kept += spends
        if step is not None:
            step.spends = [*step.spends, *spends]
        elif self.held is not None:
            self.held += spends

    def _unknown(self, spends: list[Spend]) -> list[Spend]:
        """Return the spends that are not in the ledger yet: others would be counted twice until they are written."""
        if self._written_keys is None:
            rows = self._attempt.patiently(lambda: self._store.spending(self._attempt.grant.id))
            self._written_keys = {(row.key, row.unit) for row in rows}
        known = self._written_keys | {(spend.key, spend.unit) for spend in self._pending()}
        return [spend for spend in spends if (spend.key, spend.unit) not in known]

    def _write_alone(self, spends: Sequence[Spend]) -> None:
        with self._lock:
            self._loose += spends
        self.flush()

    def flush(self) -> None:
        """Write the loose spends. While the database is away the attempt waits, as for its steps; spends that still
        cannot be written stay loose."""
        grant = self._attempt.grant
        with self._writing:
            with self._lock:
                spends = list(self._loose)
            if not spends:
                return
            try:
                lines = self._attempt.patiently(
                    lambda: self._store.spend(grant.id, grant.token, grant.attempt, spends)
                )
            except JobNotFound:
                logger.warning("job %s was pruned; its spending is not recorded: %s", grant.id, spends)
                lines = []
            self.wrote(spends, lines)

    def flush_at_the_end(self) -> None:
        """Write after the handler has ended: an error can only be logged."""
        try:
            self.flush()
        except (Exception, StopRequested) as error:
            logger.error(
                "job %s: its spending was not recorded: %s (%s)", self._attempt.grant.id, self._loose, error
            )

    @property
    def has_loose(self) -> bool:
        return bool(self._loose)

    # -- what was kept ---------------------------------------------------------------------------------------------
    def wrote(self, spends: Sequence[Spend], lines: Sequence[BudgetLine] | None) -> None:
        """The spends are in the ledger; `lines` are the budgets after them, if known."""
        with self._lock:
            self._kept = [spend for spend in self._kept if spend not in spends]
            self._loose = [spend for spend in self._loose if spend not in spends]
            if self._written_keys is not None:
                self._written_keys.update((spend.key, spend.unit) for spend in spends)
            if lines is None:
                lines = [_plus(line, total(spends, line.unit)) for line in self._lines.values()]
            self._learn(lines)

    def give_up(self, spends: Sequence[Spend]) -> None:
        """Write the spends of a failed step alone. Never raises: that would hide the step's own error."""
        with self._lock:
            self._kept = [spend for spend in self._kept if spend not in spends]
            self._loose += spends
        try:
            self.flush()
        except (Exception, StopRequested) as error:
            logger.warning(
                "job %s: the spending of a step is not recorded yet: %s", self._attempt.grant.id, error
            )

    # -- what is left ----------------------------------------------------------------------------------------------
    def load(self) -> None:
        if not self._loaded:
            grant = self._attempt.grant
            lines = self._attempt.patiently(lambda: self._store.budget(grant.id, grant.attempt))
            with self._lock:
                self._learn(lines)

    def left(self, unit: str) -> int | None:
        rests = [
            max(0, line.limit - line.spent)
            for line in self._now()
            if line.unit == unit and line.limit is not None
        ]
        return min(rests, default=None)

    def spent(self, unit: str) -> int:
        known = [line.spent for line in self._now() if line.scope != "group" and line.unit == unit]
        return known[0] if known else total(self._pending(), unit)

    def over(self) -> OverBudget | None:
        """Return the error for a limit that is exceeded although the attempt goes on."""
        return self._first_over(self._now())

    def _check(self, units: Mapping[str, int]) -> None:
        if halts(self._policy):
            error = self._first_over(line for line in self._now() if line.unit in units)
            if error is not None:
                raise error

    def _first_over(self, lines: Iterable[BudgetLine]) -> OverBudget | None:
        for line in lines:
            if line.limit is not None and line.exhausted:
                job_id = self._attempt.grant.id
                return OverBudget(job_id, line.scope, line.name, line.unit, line.limit, line.spent)
        return None

    def _now(self) -> list[BudgetLine]:
        """The budgets as last read from the ledger, plus the spends that are not in it yet."""
        pending = self._pending()
        with self._lock:
            return [_plus(line, total(pending, line.unit)) for line in self._lines.values()]

    def _pending(self) -> list[Spend]:
        with self._lock:
            return [*self._kept, *self._loose]

    def _learn(self, lines: Iterable[BudgetLine]) -> None:
        """Totals only grow: ignore a reply that a later one has overtaken."""
        self._loaded = True
        for line in lines:
            known = self._lines.get((line.scope, line.unit))
            if known is None or known.spent <= line.spent:
                self._lines[line.scope, line.unit] = line


def has_limits(grant: Grant) -> bool:
    """Return whether the attempt may have a limit at all: otherwise there is nothing to load."""
    return grant.group is not None or Policy.load(grant.policy).budget is not None


def _plus(line: BudgetLine, amount: int) -> BudgetLine:
    if not amount:
        return line
    return BudgetLine(line.scope, line.name, line.unit, line.limit, line.spent + amount)
