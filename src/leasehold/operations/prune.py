"""Prune: deletes jobs that ended long ago, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

from leasehold.domain.retention import (
    Keep,
    PruneChoice,
    PruneCount,
    PruneReport,
    Retention,
    retention_by_state,
)
from leasehold.domain.states import ENDED, State
from leasehold.operations.local import LocalOperator

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

PRUNE_BATCH = 1000


class PruneOperations(LocalOperator):
    def prune(
        self,
        older_than: Keep,
        choice: PruneChoice = PruneChoice(),  # noqa: B008 - frozen
        *,
        actor: str | None = None,
    ) -> PruneReport:
        """Delete jobs that ended longer ago than this, batch by batch."""
        *_, report = self.prune_batches(older_than, choice, actor=actor)
        return report

    def prune_batches(
        self, older_than: Keep, choice: PruneChoice, *, actor: str | None = None
    ) -> Iterator[PruneReport]:
        """Like `prune`, but yields the report so far after each batch. The first batch writes the audit entry."""
        ages = retention_by_state(older_than, "older_than", dict.fromkeys(ENDED))
        store, after = self._store, None
        requested = {"older_than": ages, **asdict(choice)}
        record: AbstractContextManager[JobStore] = nullcontext(store)
        if not choice.dry_run:
            record = self._recorded("prune", None, actor, **requested)
        retention = Retention(ages, {} if choice.override else store.retention())
        counts: Counter[tuple[str, State]] = Counter()
        groups = 0
        while True:
            with record:
                pruned = store.prune(
                    retention,
                    PRUNE_BATCH,
                    after,
                    unique_for_ever=choice.unique_for_ever,
                    dry_run=choice.dry_run,
                )
            record = nullcontext(store)
            counts.update(pruned.counts)
            groups += pruned.groups
            yield _report(counts, groups, choice)
            after = pruned.next
            if after is None:
                break
        while choice.budgets:
            pruned = store.prune_groups(PRUNE_BATCH, after, dry_run=choice.dry_run)
            groups += pruned.groups
            after = pruned.next
            if after is None:
                break
        if not choice.dry_run:
            store.sweep_results()
        yield _report(counts, groups, choice)


def _report(counts: Counter[tuple[str, State]], groups: int, choice: PruneChoice) -> PruneReport:
    listed = tuple(PruneCount(task, state, jobs) for (task, state), jobs in sorted(counts.items()))
    return PruneReport(counts.total(), groups, listed, choice.dry_run)
