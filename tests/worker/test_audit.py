"""The audit of each tenant is its own, and the pruner takes what is old."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from leasehold import Leasehold
from leasehold.domain.retention import retention_by_state
from leasehold.errors import InvalidInput, InvalidState
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from leasehold.worker import pruner
from leasehold.worker.pruner import Pruner
from tests.backends import Backend

DAY = 86_400.0
KEEP = retention_by_state("7d", "retention")


@pytest.fixture
def tenants(app: Leasehold) -> Iterator[list[str]]:
    for name in ("acme", "beta"):
        app.tenants.create(name, actor="ann")
    yield ["acme", "beta"]
    for row in app.tenants.list():
        app.tenants.drop(row.name)


def test_what_is_done_to_a_tenant_stands_in_its_own_audit(app: Leasehold, tenants: list[str]):
    app.task(name="work")(lambda: None)
    acme = app.tenant("acme")
    job = acme.enqueue("work")
    job.cancel("enough", actor="bob")
    with pytest.raises(InvalidState):
        job.pause(actor="bob")
    acme.slots.set("gpu", 2, actor="bob")
    assert [(row.verb, row.target, row.outcome) for row in acme.audit(actor="bob").entries] == [
        ("slot.set", "gpu", "done"),
        ("job.pause", job.id, "refused"),
        ("job.cancel", job.id, "done"),
    ]
    assert app.tenant("beta").audit(actor="bob").entries == []
    assert [(row.verb, row.target) for row in app.audit().entries] == [
        ("tenant.create", "beta"),
        ("tenant.create", "acme"),
    ]


def test_the_async_twin_tells_the_same(app: Leasehold):
    app.slots.set("gpu", 2, actor="ann")
    assert asyncio.run(app.aaudit(verb="slot.set")) == app.audit(verb="slot.set")


def audited(store: JobStore) -> int:
    return len(store.list_audit(limit=500).entries)


def test_the_pruner_takes_what_is_old_and_nothing_else(
    backend: Backend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pruner, "PRUNE_BATCH", 3)
    with Leasehold(backend.url, schema=backend.schema, clock=clock) as app:
        store = app.__internals__.store
        for number in range(7):
            app.slots.set("gpu", number)
        clock.advance(50 * DAY)
        app.slots.set("gpu", 50)
        clock.advance(50 * DAY)
        Pruner(store, KEEP).beat()
        assert audited(store) == 8, "without an age it is kept for ever"
        role = Pruner(store, KEEP, 90 * DAY)
        beats = 1
        while role.beat() == pruner.BETWEEN_BATCHES:
            beats += 1
        assert (beats, audited(store)) == (3, 1)


def test_the_pruner_of_many_tenants_prunes_each(backend: Backend, clock: ManualClock):
    with Leasehold(backend.url, schema=backend.schema, clock=clock) as app:
        for name in ("acme", "beta"):
            app.tenants.create(name)
            app.tenant(name).slots.set("gpu", 1)
        clock.advance(100 * DAY)
        app.tenant("beta").slots.set("gpu", 2)
        many = app.__internals__.shared.stores.serving(["all"])
        role = Pruner(many, KEEP, 90 * DAY)
        while role.beat() == pruner.BETWEEN_BATCHES:
            pass
        assert [len(app.tenant(name).audit().entries) for name in ("acme", "beta")] == [0, 1]
        assert app.audit().entries == []
        for name in ("acme", "beta"):
            app.tenants.drop(name)


def test_a_worker_is_told_how_long_the_audit_is_kept(tmp_path):
    with Leasehold(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.task(name="work")(lambda: None)
        assert app.worker().settings.audit_retention == 90 * DAY
        assert app.worker(audit_retention="1d").settings.audit_retention == DAY
        assert app.worker(audit_retention=None).settings.audit_retention is None
        with pytest.raises(InvalidInput, match="audit_retention"):
            app.worker(audit_retention="soon")
