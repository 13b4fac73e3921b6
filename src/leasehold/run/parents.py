"""Results of the jobs that an attempt has waited for. Read on demand, so a job without parents pays nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leasehold.domain.records import ParentResult, Relative

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

MOST_PARENTS = 1_000_000


def results_of(store: JobStore, job_id: str) -> dict[str, Any]:
    """Plain JSON: the tasks of the parents may be registered elsewhere."""
    return {one.id: _result_of(store, one) for one in store.parent_results(job_id)}


def _result_of(store: JobStore, parent: ParentResult) -> Any:
    text = parent.result
    if parent.result_ref is not None:
        text = store.read_result(parent.id, parent.result_ref)
    return None if text is None else json.loads(text)


def parents_of(store: JobStore, job_id: str) -> list[Relative]:
    found = store.relatives(job_id, MOST_PARENTS)
    return [one for one in found if one.relation == "waits_for"]
