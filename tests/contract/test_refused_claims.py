"""A job whose row the database refuses holds up no other job: it fails with the reason, and the claim goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from leasehold.domain.errors import InvalidState
from leasehold.domain.hooks import Listener
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from leasehold.operations.explain import explain
from leasehold.stores.results import ClaimDenied
from tests.backends import Backend, new_job, put
from tests.contract.lives import OWNER, claim_ids, end, orphan, run
from tests.contract.test_mirrors import MIRRORED, called, mirror_of, rows

BAD = 5
"""Runs whose number ends in 5 are refused."""


class Runs:
    """A table of the user's own that refuses some states of some runs."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def refuse(self, *states: str, how: str = "check") -> None:
        words = ", ".join(f"'it''s {state}'" for state in states)
        query = self.backend.query
        bad = f'{{0}}run % 10 = {BAD} AND {{0}}"Status" IN ({words})'
        columns = 'run BIGINT PRIMARY KEY, "Status" TEXT NOT NULL'
        if how == "check":
            columns += f", CHECK (NOT ({bad.format('')}))"
        elif "foreign key" in how:
            good = ", ".join(f"('it''s {state.value}')" for state in State if state not in states)
            query(
                f"CREATE TABLE leasehold.words (word TEXT PRIMARY KEY); INSERT INTO leasehold.words VALUES {good}"
            )
            later = "DEFERRABLE INITIALLY DEFERRED" if "deferred" in how else ""
            columns += (
                f', word TEXT GENERATED ALWAYS AS (CASE WHEN run % 10 = {BAD} THEN "Status" END) STORED'
                f" REFERENCES leasehold.words {later}"
            )
        query(f"CREATE TABLE leasehold.runs ({columns})")
        if how == "trigger" and self.backend.name == "sqlite":
            for what in ("INSERT", "UPDATE"):
                query(
                    f"CREATE TRIGGER leasehold.refuse_{what} BEFORE {what} ON leasehold.runs WHEN {bad.format('NEW.')}"
                    " BEGIN SELECT RAISE(ABORT, 'not today'); END"
                )
        elif how == "trigger":
            query(
                "CREATE FUNCTION leasehold.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                f" IF {bad.format('NEW.')} THEN RAISE 'not today'; END IF; RETURN NEW; END $$;"
                " CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON leasehold.runs"
                " FOR EACH ROW EXECUTE FUNCTION leasehold.refuse()"
            )
        self.backend.open().add_mirror(mirror_of(self.backend, columns={}, insert=True))

    def drop(self) -> None:
        for row in (store := self.backend.open()).list_mirrors():
            store.remove_mirror(row.mirror)
        for table in ("runs", "words"):
            self.backend.query(f"DROP TABLE IF EXISTS leasehold.{table}")
        if self.backend.name == "postgres":
            self.backend.query("DROP FUNCTION IF EXISTS leasehold.refuse")


@pytest.fixture
def runs(backend: Backend) -> Iterator[Runs]:
    runs = Runs(backend)
    yield runs
    runs.drop()


WAYS = [("sqlite", how) for how in ("check", "trigger")]  # our connections to SQLite enforce no foreign keys
WAYS += [("postgres", how) for how in ("check", "trigger", "foreign key", "deferred foreign key")]


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize(("backend", "how"), WAYS, indirect=["backend"])
def test_jobs_whose_start_is_refused_fail_and_the_others_are_claimed_in_the_same_call(store, runs, how, idle):
    runs.refuse("running", how=how)
    store.register_listeners([Listener("mine", "failed")])
    store.set_slot("gpu", 1)
    jobs = [new_job(args=called(n), policy=MIRRORED) for n in range(20)]
    jobs += [new_job() for _ in range(10)]
    jobs += [new_job(lane=f"lane {n}") for n in range(3)] + [new_job(slots=(("gpu", 1),))]
    store.enqueue(jobs)
    bad = {jobs[n].id for n in (5, 15)}
    claimed = claim_ids(store, 100, idle=idle)
    assert sorted(claimed) == sorted(job.id for job in jobs if job.id not in bad)
    for job_id in bad:
        job = store.get(job_id)
        assert (job.state, job.attempt) == (State.FAILED, 0)
        assert job.error.startswith("the database refuses to start it: ")
        assert [(entry.event, entry.detail) for entry in store.history(job_id)] == [("failed", job.error)]
        assert job.error in explain(store, job_id)[0].detail
    assert {one.event.job_id for one in store.take_events(["mine"], 10, 60.0)} == bad
    words = dict(rows(runs.backend))
    assert {words[5], words[15]} == {"it's failed"}
    assert {words[n] for n in range(20) if n not in (5, 15)} == {"it's running"}


def test_a_refused_job_halts_its_lane_and_can_be_resumed(store, runs):
    runs.refuse("running")
    first = put(store, args=called(BAD), policy=MIRRORED, lane="l")
    second = put(store, lane="l")
    assert claim_ids(store) == []
    assert (store.get(first.id).state, store.get(first.id).halts_lane) == (State.FAILED, True)
    assert store.resume(first.id).state is State.QUEUED
    store.remove_mirror(store.list_mirrors()[0].mirror)
    assert claim_ids(store) == [first.id]
    end(store, store.find_leases_of(OWNER)[0], Success())
    assert claim_ids(store) == [second.id]


def test_a_lane_goes_on_behind_a_refused_job_whose_failure_does_not_halt_it(store, runs):
    runs.refuse("running")
    first = put(store, args=called(BAD), policy=Policy(mirror=True, on_failure="skip"), lane="l")
    second = put(store, lane="l")
    claimed = claim_ids(store) or claim_ids(store)
    assert (claimed, store.get(first.id).state) == ([second.id], State.FAILED)


def test_refused_jobs_of_one_queue_hold_up_no_other_queue_and_their_dependants_learn_it(store, runs):
    runs.refuse("running")
    bad = [new_job(args=called(10 * n + BAD), policy=MIRRORED) for n in range(30)]
    child = new_job(after=(bad[0].id,))
    good = [new_job(queue="other") for _ in range(3)]
    store.enqueue([*bad, child, *good])
    grants = store.claim(OWNER, ["default", "other"], 4, order="turns")
    assert sorted(grant.id for grant in grants) == sorted(job.id for job in good)
    while any(store.get(job.id).state is State.QUEUED for job in bad):
        assert claim_ids(store, 4) == []
    assert store.get(child.id).state is State.CANCELLED


def test_a_job_that_may_neither_start_nor_fail_leaves_the_head_of_its_queue_and_why_says_it(
    store, clock, runs
):
    runs.refuse("running", "failed")
    bad = put(store, args=called(BAD), policy=MIRRORED)
    first = put(store, args=called(10 + BAD), policy=MIRRORED, lane="l")
    second = put(store, lane="l")
    good = put(store)
    assert claim_ids(store) == [good.id]
    assert store.get(bad.id).state is State.QUEUED
    detail = explain(store, bad.id)[0].detail
    assert "not due" in detail
    assert "the database refuses to start it: " in detail
    clock.advance(400)
    assert claim_ids(store) == []
    assert [entry.event for entry in store.history(bad.id)] == ["refused"]
    clock.advance(400)
    store.remove_mirror(store.list_mirrors()[0].mirror)
    assert sorted(claim_ids(store)) == sorted([bad.id, first.id])
    assert store.get(second.id).state is State.QUEUED


def test_a_claim_by_id_fails_the_job_and_gives_the_reason(store, runs):
    runs.refuse("running")
    job = put(store, args=called(BAD), policy=MIRRORED)
    denied = store.claim_by_id(job.id, OWNER)
    assert isinstance(denied, ClaimDenied)
    assert (denied.state, denied.why) == (State.FAILED, store.get(job.id).error)
    assert isinstance(store.claim_by_id(put(store, args=called(1), policy=MIRRORED).id, OWNER), Grant)


def test_a_job_to_run_now_is_refused_with_the_reason_and_not_stored(store, runs):
    runs.refuse("running")
    with pytest.raises(InvalidState, match="the database refuses it"):
        store.run_now(new_job(args=called(BAD), policy=MIRRORED), OWNER, 1)
    assert (store.list_jobs().jobs, rows(runs.backend)) == ([], [])


def test_an_execution_that_cannot_be_adopted_holds_up_no_other(store, clock, runs):
    executions = [orphan(store, clock, args=called(n), policy=MIRRORED) for n in (1, BAD, 2)]
    runs.refuse("running")
    adopted = store.adopt("another", ["machine-1"])
    assert sorted(grant.id for grant in adopted) == sorted([executions[0].id, executions[2].id])
    assert store.get(executions[1].id).orphan


def test_a_lost_job_whose_next_state_is_refused_holds_up_the_recovery_of_no_other(store, clock, runs):
    jobs = [run(store, args=called(n), policy=MIRRORED) for n in (1, BAD, 2)]
    runs.refuse("queued")
    sightings = []
    clock.advance(100)
    sightings = store.sight_overdue(5.0)
    clock.advance(20)
    reaped = store.reap(sightings)
    assert sorted(one.id for one in reaped) == sorted([jobs[0].id, jobs[2].id])
    assert store.get(jobs[1].id).state is State.RUNNING


def test_a_time_that_is_over_ends_the_others_though_the_end_of_one_is_refused(store, clock, runs):
    jobs = [put(store, args=called(n), policy=MIRRORED, deadline=10.0) for n in (1, BAD, 2)]
    runs.refuse("timed_out")
    clock.advance(20)
    assert sorted(job.id for job in store.expire()) == sorted([jobs[0].id, jobs[2].id])


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_row_that_cannot_be_read_holds_up_no_other(store, backend):
    """PostgreSQL stores no text that cannot be read."""
    bad, good = put(store), put(store)
    with closing(sqlite3.connect(backend.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute("UPDATE leasehold_job SET args = CAST(x'ff' AS TEXT) WHERE id = ?", [bad.id])
    assert claim_ids(store) == [good.id]
    assert claim_ids(store) == []
    assert [entry.event for entry in store.history(bad.id)] == ["refused"]


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_mirrored_table_that_was_dropped_holds_up_no_plain_job(store, backend):
    """On SQLite a trigger that cannot be compiled stops every insert."""
    runs = Runs(backend)
    runs.refuse("running")
    try:
        bad = put(store, args=called(1), policy=MIRRORED)
        good = put(store)
        backend.query("DROP TABLE leasehold.runs")
        assert claim_ids(store) == [good.id]
        assert claim_ids(store) == []
        assert "runs" in store.history(bad.id)[0].detail
    finally:
        runs.drop()
