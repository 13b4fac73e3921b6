"""`app.sweep()`: what workers do every few seconds, done now."""

from __future__ import annotations

import asyncio

import pytest

from leasehold import Leasehold, State
from leasehold.errors import InvalidInput
from leasehold.testing import ManualClock
from leasehold.types import Reaped
from tests.workers import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(app: Leasehold) -> Leasehold:
    @app.task(name="work")
    def work() -> None: ...

    return app


def lose(app, clock):
    job = app.enqueue("work")
    app.__internals__.store.claim_by_id(job.id, "gone")
    clock.advance(31)
    return job


def test_a_sweep_takes_over_what_two_looks_have_seen_and_says_so(app, clock):
    job = lose(app, clock)
    assert app.sweep(wait=0) == [], "one look is not enough"
    assert job.refresh().state is State.RUNNING
    clock.advance(10)
    assert app.sweep(wait=0) == [Reaped(job.id, "gone", State.QUEUED, orphan=False)]
    assert job.refresh().state is State.QUEUED
    assert app.sweep() == []


def test_a_sweep_leaves_those_alone_who_are_only_late(app, clock):
    job = app.enqueue("work")
    grant = app.__internals__.store.claim_by_id(job.id, "slow")
    clock.advance(25)
    assert app.sweep() == [], "and it does not wait for them"
    app.__internals__.store.renew({grant.id: grant.token})
    clock.advance(10)
    assert app.sweep(wait=0) == []


def test_a_sweep_ends_jobs_whose_time_is_over(app, clock):
    job = app.enqueue("work", start_by=60)
    clock.advance(60)
    assert asyncio.run(app.asweep()) == []
    assert job.refresh().state is State.CANCELLED


def test_a_sweep_waits_for_its_second_look(backend):
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task(name="brief", lease=0.6)
        def brief() -> None: ...

        job = brief.enqueue()
        store = app.__internals__.store
        store.claim_by_id(job.id, "gone")
        end = store.get(job.id).lease_expires_at
        asyncio.run(until(lambda: store.now() > end))
        assert [lost.id for lost in app.sweep()] == [job.id]


def test_a_wait_that_is_no_duration_is_refused_by_name(app):
    with pytest.raises(InvalidInput) as caught:
        app.sweep(wait="soon")
    assert caught.value.field == "wait"
