"""Hot statements wait for nobody, and careful verbs lock anchors by seq, whatever the planner believes: so no two of
them can wait for each other in a circle.

An UPDATE or a DELETE locks rows as its plan goes. Over a table that was vacuumed while it was empty, a plan may go
through the rows as they lie on the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.domain.stop import StopScope
from leasehold.domain.stream import Note, RunNotes
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job

JOBS = 40
GONE = 12_000
"""Jobs that were there before: their pages are left."""

BELIEFS = [0, 1, 10, 20, 1_000]
"""How many rows the planner takes the tables to have."""

Verb = Callable[[JobStore, list[Grant]], object]


def renew(store: JobStore, grants: list[Grant]) -> object:
    return store.renew({grant.id: grant.token for grant in grants})


def succeed(store: JobStore, grants: list[Grant]) -> object:
    return store.settle([Ending(grant.id, grant.token, Success("1"), grant.seq) for grant in grants])


def fail(store: JobStore, grants: list[Grant]) -> object:
    return store.settle([Ending(grant.id, grant.token, Failure("broken")) for grant in grants])


def stop(store: JobStore, grants: list[Grant]) -> object:
    return store.stop_jobs([grant.id for grant in grants], StopScope(everything=True), "immediate")


def wait_for(store: JobStore, grants: list[Grant]) -> object:
    return store.enqueue([new_job(after=tuple(grant.id for grant in grants))])


@pytest.mark.parametrize("believed", BELIEFS)
def test_a_renewal_waits_for_nobody_and_a_locked_job_costs_the_others_nothing(
    believed: int, postgres_url: str, postgres_schema: str
):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store, grants = _scene(backend)
    backend.mislead_planner(believed)
    before = {grant.id: store.get(grant.id).lease_expires_at for grant in grants}
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, "lease", "job", grants[5].seq)
        renewals = {renewal.id: renewal.extended for renewal in store.renew({g.id: g.token for g in grants})}
    assert renewals == {grant.id: grant is not grants[5] for grant in grants}
    moved = {grant.id: store.get(grant.id).lease_expires_at > before[grant.id] for grant in grants}
    assert moved == renewals
    backend.close_opened()


@pytest.mark.parametrize("believed", BELIEFS)
def test_a_batch_of_successes_waits_only_for_the_job_that_is_locked_and_holds_no_other(
    believed: int, postgres_url: str, postgres_schema: str
):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store, grants = _scene(backend)
    backend.mislead_planner(believed)
    caller = threading.Thread(target=succeed, args=(store, grants))
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, "lease", "job", grants[5].seq)
        caller.start()
        _wait_until_somebody_waits_for(backend, held.info.backend_pid)
        ended = backend.query("SELECT count(*) FROM leasehold.outcome")
    caller.join(30)
    assert ended == [(JOBS - 1,)], "the others have ended meanwhile"
    assert {store.get(grant.id).state for grant in grants} == {State.SUCCEEDED}
    backend.close_opened()


OUTCOMES = {
    "plain success": Success("1"),
    "failure": Failure("broken"),
    "success with a follow-up": Success("1", None, (new_job(),)),
    "refused by the database": Success("not json"),
}


@pytest.mark.parametrize(("table", "key"), [("lease", "job"), ("job", "seq")])
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_a_settle_that_does_not_wait_names_the_locked_jobs_and_ends_the_others(
    outcome: Success | Failure, table: str, key: str, postgres_url: str, postgres_schema: str
):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store = backend.open()
    store.upgrade()
    made = store.enqueue([new_job() for _ in range(4)])
    lost, locked, *others = store.claim("w", ["default"], 4)
    store.settle([Ending(lost.id, lost.token, Failure("it went on elsewhere", final=True))])
    # The anchor alone keeps nobody from a plain success.
    passes = table == "job" and outcome == OUTCOMES["plain success"]
    kept = [] if passes else [locked.id]
    endings = [Ending(g.id, g.token, outcome, g.seq) for g in (lost, locked, *others)]
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, table, key, locked.seq)
        settled = store.settle(endings, wait=False)
        assert (settled.locked, settled.fenced) == (kept, [lost.id])
        assert settled.accepted == sorted(g.id for g in (locked, *others) if g.id not in kept)
    again = store.settle([ending for ending in endings if ending.id in kept], wait=False)
    assert (again.accepted, again.fenced, again.locked) == (kept, [], [])
    assert {store.get(job.id).state for job in made} <= {State.SUCCEEDED, State.QUEUED, State.FAILED}
    backend.close_opened()


def test_a_locked_child_holds_up_its_own_parent_and_no_other_ending(postgres_url: str, postgres_schema: str):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store = backend.open()
    store.upgrade()
    store.enqueue([new_job() for _ in range(4)])
    grants = store.claim("w", ["default"], 4)
    children = [new_job(after=(grant.id,)) for grant in grants]
    grandchild = new_job(after=(children[1].id,))
    store.enqueue([*children, grandchild])
    endings = [Ending(g.id, g.token, Success("1"), g.seq) for g in grants]
    for locked in (children[1].id, grandchild.id):
        with psycopg.connect(postgres_url) as held:
            _lock(held, backend, "job", "seq", store.get(locked).seq)
            settled = store.settle(endings, wait=False)
            assert (settled.locked, settled.fenced) == ([grants[1].id], [])
        endings = [ending for ending in endings if ending.id == grants[1].id]
    assert store.settle(endings, wait=False).accepted == [grants[1].id]
    assert {store.get(child.id).state for child in children} == {State.QUEUED}
    assert store.get(grandchild.id).state is State.PENDING
    backend.close_opened()


@pytest.mark.parametrize(("table", "key"), [("lease", "job"), ("job", "seq")])
def test_what_runs_tell_does_not_wait_for_a_locked_job(
    table: str, key: str, postgres_url: str, postgres_schema: str
):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store = backend.open()
    store.upgrade()
    store.enqueue([new_job() for _ in range(3)])
    locked, *others = store.claim("w", ["default"], 3)
    notes = [RunNotes(g.id, g.token, g.attempt, (Note(1, "item", "1"),)) for g in (locked, *others)]
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, table, key, locked.seq)
        reported = store.write_updates(
            [*notes, RunNotes(locked.id, locked.token - 1, 1, (Note(1, "item", "1"),))]
        )
        assert (reported.locked, reported.lost) == (
            [(locked.id, locked.token)],
            [(locked.id, locked.token - 1)],
        )
    assert [len(store.read_stream(g.id).updates) for g in (locked, *others)] == [0, 1, 1]
    assert store.write_updates(notes).locked == []
    assert [len(store.read_stream(g.id).updates) for g in (locked, *others)] == [1, 1, 1]
    backend.close_opened()


@pytest.mark.parametrize("believed", BELIEFS)
@pytest.mark.parametrize("verb", [fail, stop, wait_for])
def test_anchors_are_locked_by_seq_whatever_the_planner_believes(
    verb: Verb, believed: int, postgres_url: str, postgres_schema: str
):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store, grants = _scene(backend)
    backend.mislead_planner(believed)
    caller = threading.Thread(target=verb, args=(store, grants))
    first = min(grant.seq for grant in grants)
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, "job", "seq", first)
        caller.start()
        _wait_until_somebody_waits_for(backend, held.info.backend_pid)
        free = backend.query(
            "SELECT seq FROM leasehold.job WHERE seq = ANY(?) FOR UPDATE SKIP LOCKED", [g.seq for g in grants]
        )
        leases = backend.query("SELECT job FROM leasehold.lease FOR UPDATE SKIP LOCKED")
    caller.join(30)
    backend.close_opened()
    assert len(free) == JOBS - 1, "it waits for the first of its jobs, and holds others already"
    assert len(leases) == JOBS, "places come after all anchors"


def test_rows_do_not_lie_in_the_order_of_seq_here(postgres_url: str, postgres_schema: str):
    """Else the tests above show nothing."""
    backend = Backend("postgres", postgres_url, postgres_schema)
    _scene(backend)
    for table, key in (("job", "seq"), ("lease", "job")):
        lie = [row[0] for row in backend.query(f"SELECT {key} FROM leasehold.{table} ORDER BY ctid")]
        assert lie == sorted(lie, reverse=True)
    backend.close_opened()


@pytest.mark.parametrize("verb", [renew, wait_for], ids=["renewed", "waited for"])
def test_a_job_that_just_spends_keeps_nobody_waiting(verb: Verb, postgres_url: str, postgres_schema: str):
    """It holds its own row lightly and waits for its group's total, which may be held by whoever comes here."""
    backend = Backend("postgres", postgres_url, postgres_schema)
    store = backend.open()
    store.upgrade()
    store.enqueue([new_job() for _ in range(3)])
    grants = store.claim("w", ["default"], 3)
    caller = threading.Thread(target=verb, args=(store, grants))
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, "job", "seq", grants[1].seq, "KEY SHARE")
        caller.start()
        caller.join(30)
        waits = caller.is_alive()
    caller.join(30)
    backend.close_opened()
    assert not waits


def test_a_sweep_of_slots_waits_for_nobody(postgres_url: str, postgres_schema: str):
    """The pruner removes the same rows, in an order of its own."""
    backend = Backend("postgres", postgres_url, postgres_schema)
    store = backend.open()
    store.upgrade()
    for number in range(2):
        backend.query("INSERT INTO leasehold.slot_hold VALUES ('browser', ?, ?, 1)", 1_000 + number, number)

    def sweep() -> None:
        store._postgres.single(lambda session: session.run("sweep_holds", name="browser"))  # type: ignore[attr-defined]

    caller = threading.Thread(target=sweep)
    with psycopg.connect(postgres_url) as held:
        held.execute(f"SELECT FROM {postgres_schema}.slot_hold WHERE attempt = 0 FOR UPDATE".encode())
        caller.start()
        caller.join(30)
        waits = caller.is_alive()
    caller.join(30)
    left = backend.query("SELECT attempt FROM leasehold.slot_hold")
    backend.close_opened()
    assert not waits
    assert left == [(0,)]


def test_a_question_that_runs_out_waits_for_nobody(postgres_url: str, postgres_schema: str):
    """Else one row that somebody has locked would keep all reapers from their sweeps."""
    backend = Backend("postgres", postgres_url, postgres_schema)
    store = backend.open()
    store.upgrade()
    store.enqueue([new_job(), new_job()])
    locked, other = store.claim("w", ["default"], 2)
    for grant in (locked, other):
        store.settle([Ending(grant.id, grant.token, QuestionAsked("q", "May I?", timeout=0.001))])
    expired: list[str] = []
    caller = threading.Thread(target=lambda: expired.extend(job.id for job in store.expire()))
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, "job", "seq", locked.seq)
        caller.start()
        caller.join(10)
        waits = caller.is_alive()
    caller.join(30)
    later = [job.id for job in store.expire()]
    backend.close_opened()
    assert not waits
    assert (expired, later) == ([other.id], [locked.id])


@pytest.mark.parametrize("verb", ["reap", "expire", "claim"])
def test_an_end_by_the_clock_does_not_wait_for_who_waits_for_the_job(
    verb: str, postgres_url: str, postgres_schema: str
):
    """A child is judged with its parent's end. Somebody has locked it: the other jobs of the sweep do not wait."""
    backend, clock = Backend("postgres", postgres_url, postgres_schema), ManualClock()
    store = backend.open(clock)
    store.upgrade()
    jobs = [new_job(deadline=1000.0, policy=Policy(on_lost="fail")) for _ in range(2)]
    children = [new_job(after=(job.id,)) for job in jobs]
    store.enqueue([*jobs, *children])
    ended: list[str] = []
    if verb == "reap":
        store.claim("w", ["default"], 2)
        clock.advance(31)
        seen = store.sight_overdue()
        clock.advance(10)
    else:
        clock.advance(1000)

    def work() -> None:
        if verb == "claim":
            assert store.claim("w", ["default"], 2) == []
        else:
            ended.extend(job.id for job in (store.reap(seen) if verb == "reap" else store.expire()))

    caller = threading.Thread(target=work)
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, "job", "seq", store.get(children[0].id).seq)
        caller.start()
        caller.join(10)
        waits = caller.is_alive()
    caller.join(30)
    states = [store.get(job.id).state for job in (*jobs, *children)]
    backend.close_opened()
    assert not waits
    if verb != "claim":
        assert ended == [jobs[1].id]
    end = State.FAILED if verb == "reap" else State.TIMED_OUT
    left = State.QUEUED if verb == "expire" else State.RUNNING
    assert states == [left, end, State.PENDING, State.CANCELLED]


def _scene(backend: Backend) -> tuple[JobStore, list[Grant]]:
    store = backend.open()
    store.upgrade()
    store.enqueue([new_job() for _ in range(JOBS)])
    grants = store.claim("w", ["default"], JOBS)
    store.enqueue([new_job() for _ in range(GONE)])
    for table, key in (("job", "seq"), ("lease", "job")):
        backend.query(f"ALTER TABLE leasehold.{table} SET (autovacuum_enabled = false)")
        backend.query(f"CREATE INDEX backwards ON leasehold.{table} ({key} DESC)")
        backend.query(f"CLUSTER leasehold.{table} USING backwards")
        backend.query("DROP INDEX leasehold.backwards")
    backend.query("DELETE FROM leasehold.job WHERE seq IN (SELECT seq FROM leasehold.ready)")
    backend.query("DELETE FROM leasehold.ready")
    return store, grants


def _lock(
    connection: psycopg.Connection, backend: Backend, table: str, key: str, seq: int, strength: str = "UPDATE"
) -> None:
    text = f'SELECT FROM "{backend.schema}".{table} WHERE {key} = %s FOR {strength}'
    connection.execute(text.encode(), [seq])


def _wait_until_somebody_waits_for(backend: Backend, pid: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if backend.query("SELECT pid FROM pg_stat_activity WHERE ? = ANY(pg_blocking_pids(pid))", pid):
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits for the job that is locked")
