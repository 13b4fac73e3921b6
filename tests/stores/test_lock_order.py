"""Whoever locks several jobs locks them by id, whatever the planner believes: else two of them deadlock.

An UPDATE locks rows as its plan goes. Over a table that was vacuumed while it was empty, a plan may go through the rows
as they lie on the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, Success
from leasehold.stores.answers import Ending
from leasehold.stores.contract import Store
from tests.backends import Backend, new_job

JOBS = 40
GONE = 12_000
"""Jobs that were there before: their pages are left."""

Verb = Callable[[Store, list[Grant]], object]


def renew(store: Store, grants: list[Grant]) -> object:
    return store.renew({grant.id: grant.token for grant in grants})


def succeed(store: Store, grants: list[Grant]) -> object:
    return store.settle([Ending(grant.id, grant.token, Success("1")) for grant in grants])


def fail(store: Store, grants: list[Grant]) -> object:
    return store.settle([Ending(grant.id, grant.token, Failure("broken")) for grant in grants])


@pytest.mark.parametrize("believed", [0, 1, 10, 20, 1_000])
@pytest.mark.parametrize("verb", [renew, succeed, fail])
def test_jobs_are_locked_by_id_whatever_the_planner_believes(
    verb: Verb, believed: int, postgres_url: str, postgres_schema: str
):
    backend = Backend("postgres", postgres_url, postgres_schema)
    store = backend.open()
    store.upgrade()
    store.enqueue([new_job() for _ in range(JOBS)])
    grants = store.claim("w", ["default"], JOBS)
    store.enqueue([new_job() for _ in range(GONE)])
    _lay_in_reverse(backend)
    backend.query("DELETE FROM leasehold.job WHERE state = 'queued'")
    _mislead(backend, believed)
    first = min(grant.id for grant in grants)
    caller = threading.Thread(target=verb, args=(store, grants))
    with psycopg.connect(postgres_url) as held:
        held.execute(f"SELECT FROM {postgres_schema}.job WHERE id = %s FOR UPDATE".encode(), [first])
        caller.start()
        _wait_until_somebody_waits_for(backend, held.info.backend_pid)
        free = backend.query("SELECT id FROM leasehold.job FOR UPDATE SKIP LOCKED")
    caller.join(30)
    backend.close_opened()
    assert len(free) == JOBS - 1, "it waits for the first of its jobs, and holds others already"


def _lay_in_reverse(backend: Backend) -> None:
    backend.query("ALTER TABLE leasehold.job SET (autovacuum_enabled = false)")
    backend.query("CREATE INDEX backwards ON leasehold.job (id DESC)")
    backend.query("CLUSTER leasehold.job USING backwards")
    backend.query("DROP INDEX leasehold.backwards")


def _mislead(backend: Backend, rows: int) -> None:
    """The planner takes rows per page from the last vacuum, and the pages as they are now."""
    backend.query(
        "UPDATE pg_class SET relpages = 1000 * pg_relation_size(oid) / 8192, reltuples = 1000 * ?"
        " WHERE oid = 'leasehold.job'::regclass",
        rows,
    )


def _wait_until_somebody_waits_for(backend: Backend, pid: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if backend.query("SELECT pid FROM pg_stat_activity WHERE ? = ANY(pg_blocking_pids(pid))", pid):
            return
    raise AssertionError("nobody waits for the job that is locked")
