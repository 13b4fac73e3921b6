"""Health checks for probes, in three reads. The doctor checks more, and takes longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leasehold.domain.errors import SchemaOutdated, SchemaTooNew, StoreError
from leasehold.domain.records import Finding

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


def check_health(find_store: Callable[[], JobStore]) -> list[Finding]:
    """Check that the database answers, its schema fits this code, and a worker is live."""
    try:
        store = find_store()
        store.now()
        cards = store.list_workers()
    except (SchemaOutdated, SchemaTooNew) as error:
        return [Finding("database", "ok", "answers"), Finding("schema", "bad", str(error))]
    except StoreError as error:
        return [Finding("database", "bad", str(error))]
    # A worker without queues runs only jobs of `run_now` and `run_by_id`.
    alive = [card for card in cards if card.queues and not card.draining]
    workers = (
        Finding("workers", "ok", f"{len(alive)} live")
        if alive
        else Finding("workers", "bad", "no live worker", "start one: leasehold worker MODULE:APP")
    )
    return [Finding("database", "ok", "answers"), Finding("schema", "ok", "current"), workers]
