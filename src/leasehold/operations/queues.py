"""Queues and tasks as the store knows them: who serves them, what is in them, what holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from leasehold.domain.states import State
from leasehold.domain.views import COUNT_CAP, QueueCount, QueueRow

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


def list_queues(store: JobStore, jobs: Iterable[QueueCount] | None = None) -> list[QueueRow]:
    """Four reads, whatever the number of queues; three if `jobs` were counted already, which is the dearest."""
    counts: dict[tuple[str, str], dict[State, int]] = {gate: {} for gate in store.list_gates()}
    for one in store.count_by_queue(COUNT_CAP) if jobs is None else jobs:
        counts.setdefault((one.queue, one.kind), {})[one.state] = one.jobs
    workers = [card for card in store.list_workers() if not card.draining]
    pauses = {(pause.scope, pause.name): pause for pause in store.list_pauses()}
    return [
        QueueRow(
            queue,
            kind,
            sum(1 for card in workers if queue in card.queues and kind in card.kinds),
            pauses.get(("queue", queue)),
            pauses.get(("kind", kind)),
            found,
        )
        for (queue, kind), found in sorted(counts.items())
    ]
