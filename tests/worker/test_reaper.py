"""One reaper on both stores, by a clock that the test moves: when it looks again, and what it holds back."""

from __future__ import annotations

import pytest

from leasehold.testing import ManualClock
from leasehold.worker.reaper import BRAKE_PER_SECOND, MASS_LOSS, Reaper
from tests.backends import put

SWEEP = 5.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(backend, clock):
    return backend.open(clock)


def grant(store, worker="w", **fields):
    job = put(store, **fields)
    return store.claim_by_id(job.id, worker)


@pytest.mark.parametrize("renewed_at", [0.0, 1.3, 4.9, 7.7])
def test_a_missed_lease_is_reaped_within_lease_and_sweep_of_its_last_renewal(store, clock, renewed_at):
    """Whenever the last renewal came between two sweeps."""
    lost, reaper = grant(store), Reaper(store, SWEEP)
    clock.advance(renewed_at)
    store.renew({lost.id: lost.token})
    clock.advance(SWEEP - renewed_at % SWEEP)
    reaped, passed = [], SWEEP - renewed_at % SWEEP
    while not reaped:
        reaped = reaper.sweep()
        if not reaped:
            pause = min(SWEEP, reaper.ripens_in or SWEEP)
            clock.advance(pause)
            passed += pause
        assert passed <= 30.0 + SWEEP + 1e-6
    assert passed >= 30.0 - 1e-6
    assert [one.id for one in reaped] == [lost.id]


def test_the_next_look_falls_on_the_moment_at_which_something_can_be_reaped(store, clock):
    reaper = Reaper(store, SWEEP)
    first = grant(store)
    assert (reaper.sweep(), reaper.ripens_in) == ([], None), (
        "a lease that is renewed in time is not waited for"
    )
    clock.advance(8)
    second = grant(store)
    clock.advance(9)
    assert (reaper.sweep(), reaper.ripens_in) == ([], 13.0)
    clock.advance(7)
    assert (reaper.sweep(), reaper.ripens_in) == ([], 6.0)
    clock.advance(6)
    assert [lost.id for lost in reaper.sweep()] == [first.id]
    assert reaper.ripens_in == 8.0
    clock.advance(8)
    assert [lost.id for lost in reaper.sweep()] == [second.id]
    assert reaper.ripens_in is None


def test_a_lease_that_is_renewed_between_the_looks_is_not_waited_for_any_longer(store, clock):
    reaper = Reaper(store, SWEEP)
    held = grant(store)
    clock.advance(17)
    reaper.sweep()
    store.renew({held.id: held.token})
    clock.advance(13)
    assert (reaper.sweep(), reaper.ripens_in) == ([], None)
    assert store.get(held.id).worker == "w"


def test_an_outage_is_recovered_a_few_leases_at_a_time_however_their_ends_are_spread(store, clock):
    reaper = Reaper(store, 1.0)
    for number in range(MASS_LOSS + 2 * BRAKE_PER_SECOND):
        grant(store, worker=f"w{number % 5}")
        clock.advance(0.01)
    clock.advance(20)
    reaper.sweep()
    clock.advance(10)
    for _ in range(3):
        assert len(reaper.sweep()) == BRAKE_PER_SECOND
        assert reaper.ripens_in is None, "the brake goes by sweeps"
        clock.advance(1.0)
