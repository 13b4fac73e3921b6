"""A worker dies between writing a result as a file and settling its job: the file is a stray, and no more."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import State
from tests.faults.harness import Place, wait_for


@contextlib.contextmanager
def nobody_settles(place: Place, job_id: str) -> Iterator[None]:
    """Somebody has the job's row locked, on SQLite the whole file."""
    if place.store == "sqlite":
        path = place.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")
        return
    import psycopg

    with psycopg.connect(place.url) as connection:
        connection.execute(f'SELECT FROM "{place.schema}".job WHERE id = %s FOR UPDATE'.encode(), [job_id])
        connection.execute(
            f'SELECT FROM "{place.schema}".lease AS l, "{place.schema}".job AS j'
            " WHERE j.seq = l.job AND j.id = %s FOR UPDATE OF l".encode(),
            [job_id],
        )
        yield
        connection.rollback()


def is_heard_no_more(place: Place) -> bool:
    """A server does what was sent before its client was killed: while a session of it is there, a settle may still be
    on its way. On SQLite nothing is on its way to anybody."""
    if place.store == "sqlite":
        return True
    import psycopg

    with psycopg.connect(place.url, autocommit=True) as connection:
        ours = (
            "SELECT FROM pg_stat_activity"
            " WHERE application_name LIKE 'leasehold%' AND datname = current_database()"
        )
        return connection.execute(ours).fetchone() is None


@pytest.fixture
def results(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For the workers by their environment, for the test's own app in place."""
    folder = place.folder / "results"
    monkeypatch.setenv("LEASEHOLD_RESULTS", str(folder))
    place.app.close()
    internals = place.app.__internals__
    object.__setattr__(internals.location, "results", str(folder))
    return folder


def test_a_kill_between_file_and_settle_leaves_the_job_right_and_a_stray_that_is_swept(place, fleet, results):
    job = place.tasks.wait_on_loop.using(result="file").enqueue("go")
    first = fleet.start()
    place.wait_for_start(job.id)
    with nobody_settles(place, job.id):
        place.open_gate("go-1")
        stray = wait_for(lambda: next(results.rglob("*.json"), None), "the file of the first run")
        place.app.close()  # so that whoever is still heard is the worker
        first.kill()
        wait_for(lambda: is_heard_no_more(place), "the sessions of the killed worker to end")
    assert job.refresh().state is State.RUNNING
    place.open_gate("go-2")
    fleet.start()
    place.wait_for_state(job.id, "succeeded")
    assert job.result(0) == "2:2"
    assert job.result_ref == f"{job.id}.2.json"
    assert stray.name == f"{job.id}.1.json"
    store = place.app.__internals__.store
    assert store.sweep_results() == 0, "it is young"
    long_ago = time.time() - 2 * 86_400
    for path in results.rglob("*.json"):
        os.utime(path, (long_ago, long_ago))
    assert store.sweep_results() == 1
    assert [path.name for path in results.rglob("*.json")] == [job.result_ref]
    assert job.result(0) == "2:2"
