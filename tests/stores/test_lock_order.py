"""Whoever locks several jobs locks them by id, whatever the planner believes: else two of them deadlock.

An UPDATE locks rows as its plan goes. Over a table that was vacuumed while it was empty, a plan may go through the rows
as they lie on the disk."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, Success
from leasehold.stores.answers import Ending
from leasehold.stores.contract import Store
from tests.backends import Backend, new_id, new_job
from tests.plans.postgres import Node, is_by_id, lead_of

JOBS = 40
GONE = 12_000
"""Jobs that were there before: their pages are left."""

BELIEFS = [0, 1, 10, 20, 1_000]
"""How many rows the planner takes the table to have."""
COUNTS_ON_ITS_PLAN = """
    WITH v AS MATERIALIZED (
        SELECT r.id, r.token FROM json_to_recordset(?::json) AS r(id uuid, token bigint) ORDER BY r.id)
    UPDATE leasehold.job AS j SET lease_expires_at = now() FROM v
    WHERE j.id = ANY(ARRAY(SELECT id FROM v)) AND j.id = v.id AND j.lease_token = v.token"""

Verb = Callable[[Store, list[Grant]], object]


def renew(store: Store, grants: list[Grant]) -> object:
    return store.renew({grant.id: grant.token for grant in grants})


def succeed(store: Store, grants: list[Grant]) -> object:
    return store.settle([Ending(grant.id, grant.token, Success("1")) for grant in grants])


def fail(store: Store, grants: list[Grant]) -> object:
    return store.settle([Ending(grant.id, grant.token, Failure("broken")) for grant in grants])


def wait_for(store: Store, grants: list[Grant]) -> object:
    return store.enqueue([new_job(after=tuple(grant.id for grant in grants))])


@pytest.mark.parametrize("believed", BELIEFS)
@pytest.mark.parametrize("verb", [renew, succeed, fail])
def test_jobs_are_locked_by_id_whatever_the_planner_believes(
    verb: Verb, believed: int, postgres_url: str, postgres_schema: str
):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store, grants = _scene(backend)
    backend.mislead_planner(believed)
    caller = threading.Thread(target=verb, args=(store, grants))
    with psycopg.connect(postgres_url) as held:
        _lock(held, backend, min(grant.id for grant in grants), "UPDATE")
        caller.start()
        _wait_until_somebody_waits_for(backend, held.info.backend_pid)
        free = backend.query("SELECT id FROM leasehold.job FOR UPDATE SKIP LOCKED")
    caller.join(30)
    backend.close_opened()
    assert len(free) == JOBS - 1, "it waits for the first of its jobs, and holds others already"


def test_a_statement_that_counts_on_its_plan_would_be_misled(postgres_url: str, postgres_schema: str):
    """Else the test above shows nothing."""
    backend = Backend("postgres", postgres_url, postgres_schema)
    _, grants = _scene(backend)
    leases = json.dumps([{"id": grant.id, "token": grant.token} for grant in grants])
    by_id = []
    for believed in BELIEFS:
        backend.mislead_planner(believed)
        ((told,),) = backend.query("EXPLAIN (FORMAT JSON) " + COUNTS_ON_ITS_PLAN, leases)
        by_id.append(is_by_id(lead_of(Node(told[0]["Plan"]))))
    backend.close_opened()
    assert not all(by_id)


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
        _lock(held, backend, grants[1].id, "KEY SHARE")
        caller.start()
        caller.join(10)
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
        backend.query("INSERT INTO leasehold.slot_hold VALUES ('browser', ?::uuid, ?, 1)", new_id(), number)

    def sweep() -> None:
        store._postgres.single(lambda session: session.run("sweep_holds", name="browser"))

    caller = threading.Thread(target=sweep)
    with psycopg.connect(postgres_url) as held:
        held.execute(f"SELECT FROM {postgres_schema}.slot_hold WHERE attempt = 0 FOR UPDATE".encode())
        caller.start()
        caller.join(10)
        waits = caller.is_alive()
    caller.join(30)
    left = backend.query("SELECT attempt FROM leasehold.slot_hold")
    backend.close_opened()
    assert not waits
    assert left == [(0,)]


def _scene(backend: Backend) -> tuple[Store, list[Grant]]:
    store = backend.open()
    store.upgrade()
    store.enqueue([new_job() for _ in range(JOBS)])
    grants = store.claim("w", ["default"], JOBS)
    store.enqueue([new_job() for _ in range(GONE)])
    _lay_in_reverse(backend)
    backend.query("DELETE FROM leasehold.job WHERE state = 'queued'")
    return store, grants


def _lock(connection: psycopg.Connection, backend: Backend, job_id: str, strength: str) -> None:
    text = f"SELECT FROM {backend.schema}.job WHERE id = %s FOR {strength}"
    connection.execute(text.encode(), [job_id])


def _lay_in_reverse(backend: Backend) -> None:
    backend.query("ALTER TABLE leasehold.job SET (autovacuum_enabled = false)")
    backend.query("CREATE INDEX backwards ON leasehold.job (id DESC)")
    backend.query("CLUSTER leasehold.job USING backwards")
    backend.query("DROP INDEX leasehold.backwards")


def _wait_until_somebody_waits_for(backend: Backend, pid: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if backend.query("SELECT pid FROM pg_stat_activity WHERE ? = ANY(pg_blocking_pids(pid))", pid):
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits for the job that is locked")
