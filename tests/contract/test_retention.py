"""Retention: each state and each task its own age, and what goes only when somebody asks for it."""

from __future__ import annotations

import threading
import time

import pytest

from leasehold.domain.budgets import Spend
from leasehold.domain.errors import DuplicateJob, InvalidInput
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.retention import Retention, retention_by_state
from leasehold.domain.states import ENDED, State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from tests.backends import put
from tests.contract.lives import end, run

DAY = 86_400.0


def ended(store: JobStore, task: str = "work", ok: bool = True, **fields) -> str:
    grant = run(store, task=task, **fields)
    end(store, grant, Success() if ok else Failure("boom", final=True))
    return grant.id


def left(store: JobStore, *ids: str) -> list[bool]:
    found = {job.id for job in store.list_jobs(limit=500).jobs}
    return [job_id in found for job_id in ids]


def keep(**days: float | None) -> Retention:
    return Retention({State(name): None if age is None else age * DAY for name, age in days.items()})


def test_each_state_has_an_age_of_its_own(store, clock):
    good, bad = ended(store), ended(store, ok=False)
    cancelled = store.cancel(put(store).id).id
    put(store, hold=True)
    clock.advance(2 * DAY)
    rules = keep(succeeded=1, failed=30, cancelled=None)
    pruned = store.prune(rules)
    assert pruned.counts == {("work", State.SUCCEEDED): 1}
    assert left(store, good, bad, cancelled) == [False, True, True]
    clock.advance(30 * DAY)
    assert store.prune(rules).deleted == 1
    assert left(store, bad, cancelled) == [False, True]


def test_the_rule_of_a_task_comes_first_and_everybody_knows_it(store, clock, backend):
    store.set_retention(
        {
            "kept": retention_by_state(None, "r"),
            "brief": retention_by_state({"succeeded": 60}, "r"),
            "work": {},
        }
    )
    kept, brief, brief_failed, work = (
        ended(store, "kept"),
        ended(store, "brief"),
        ended(store, "brief", ok=False),
        ended(store),
    )
    put(store, hold=True)
    clock.advance(3600)
    other = backend.open(clock)
    rules = Retention(retention_by_state("1d", "r"), other.retention())
    assert other.prune(rules).deleted == 1
    assert left(store, kept, brief, brief_failed, work) == [True, False, True, True]
    clock.advance(100 * DAY)
    assert other.prune(rules).deleted == 2
    assert left(store, kept) == [True]
    store.set_retention({"kept": {}})
    assert "kept" not in other.retention()
    assert other.prune(Retention(retention_by_state("1d", "r"), other.retention())).deleted == 1


def test_a_dry_run_counts_by_kind_and_state_and_deletes_nothing(store, clock):
    ids = [
        ended(store, "a"),
        ended(store, "a"),
        ended(store, "b", ok=False),
        ended(store, lane="l", ok=False),
    ]
    put(store, hold=True)
    clock.advance(2 * DAY)
    looked = store.prune(DAY, dry_run=True)
    assert looked.counts == {("a", State.SUCCEEDED): 2, ("b", State.FAILED): 1}
    assert left(store, *ids) == [True] * 4
    assert store.prune(DAY).counts == looked.counts
    assert left(store, *ids) == [False, False, False, True], "the last one halts its lane"


def test_what_is_unique_for_ever_goes_only_when_asked_for_and_frees_its_key(store, clock):
    fields = {"unique_key": "k", "unique_for": "ever", "on_duplicate": "raise"}
    first = ended(store, **fields)
    put(store, hold=True)
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 0
    with pytest.raises(DuplicateJob):
        put(store, **fields)
    assert store.prune(DAY, unique_for_ever=True).deleted == 1
    again = put(store, **fields)
    assert again.id != first
    with pytest.raises(DuplicateJob):
        put(store, **fields)


def test_a_group_goes_with_the_last_of_its_jobs_and_its_totals_with_it(store, clock, backend):
    first = run(store, group="g")
    store.spend(first.id, first.token, 1, [Spend("s", "tokens", 5)])
    second = run(store, group="g")
    put(store, hold=True)
    end(store, first, Success())
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 0, "one of it lives"
    end(store, second, Success())
    assert (store.prune(DAY).deleted, store.group("g") is not None) == (1, True)
    clock.advance(2 * DAY)
    pruned = store.prune(DAY)
    assert (pruned.deleted, pruned.groups, store.group("g")) == (1, 1, None)
    assert backend.query("SELECT * FROM leasehold.budget") == []
    assert put(store, group="g").group == "g", "it begins anew"


def test_a_limit_and_a_hold_outlive_the_jobs_of_their_group(store, clock):
    for name in ("limited", "held"):
        ended(store, group=name)
    store.set_group_budget("limited", {"tokens": 100})
    store.stop_group("held", hold=True)
    put(store, hold=True)
    clock.advance(2 * DAY)
    assert (store.prune(DAY).deleted, store.prune(DAY).groups) == (2, 0)
    assert [line.limit for line in store.group_budget("limited")] == [100]
    assert store.prune_groups(dry_run=True).groups == 1
    assert store.prune_groups().groups == 1
    assert (store.group_budget("limited"), store.group("limited")) == ([], None)
    held = store.group("held")
    assert held is not None
    assert held.state == "held"


def test_keeping_everything_is_no_work(store, clock):
    ended(store)
    put(store, hold=True)
    clock.advance(1000 * DAY)
    assert store.prune(Retention(dict.fromkeys(ENDED))).deleted == 0


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [({"running": "1d"}, "not a state"), ({"failed": "soon"}, "not a duration"), (-1, "out of range")],
)
def test_a_rule_that_makes_no_sense_is_refused(wrong, reported):
    with pytest.raises(InvalidInput, match=reported) as raised:
        retention_by_state(wrong, "retention")
    assert raised.value.field.startswith("retention")


def test_beside_a_drain_only_what_may_go_goes(backend):
    """By the database's own clock: everything that has ended may go at once, while another store works."""
    worker, pruner = backend.open(), backend.open()
    halting = ended(worker, lane="l", ok=False)
    parent = ended(worker)
    child = put(worker, after=(parent,), hold=True).id
    in_live_group = ended(worker, group="live")
    living = put(worker, group="live", hold=True).id
    waiting = put(worker, hold=True).id
    for n in range(400):
        put(worker, queue="drain", group=f"g{n % 7}", lane=f"l{n % 5}" if n % 3 else None)
    over = threading.Event()
    deleted = []

    def prune() -> None:
        while True:
            last = over.is_set()
            after = None
            while True:
                pruned = pruner.prune(0.0, 50, after)
                deleted.append(pruned.deleted)
                after = pruned.next
                if after is None:
                    break
            if last:
                return

    thread = threading.Thread(target=prune)
    thread.start()
    settled = 0
    try:
        deadline = time.monotonic() + 60
        while settled < 400 and time.monotonic() < deadline:
            grants = worker.claim("w", ["drain"], 20)
            done = worker.settle([Ending(grant.id, grant.token, Success("1")) for grant in grants])
            assert done.fenced == []
            settled += len(done.accepted)
    finally:
        over.set()
        thread.join()
    assert settled == 400
    while pruner.prune(0.0).deleted:
        pass
    assert left(worker, halting, child, in_live_group, living, waiting) == [True] * 5
    assert left(worker, parent) == [True], "the child may still want its result"
    assert sum(deleted) >= 390
    assert worker.misplaced() == []
