"""Closing a store beside threads that are still at work with it: they are told so, and nothing else happens."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.domain.errors import DatabaseUnreachable
from leasehold.stores.database.wakeups import listen_here, notify_here
from leasehold.stores.open import open_store
from leasehold.stores.sqlite.database import SqliteSession
from leasehold.stores.sqlite.store import SqliteStore
from leasehold.stores.store import JobStore
from tests.backends import Backend, put
from tests.stores.test_fork import in_child

ROUNDS = 30
"""Each was enough to crash the process when SQLite's readers were closed under the reading threads."""


def read(store: JobStore) -> None:
    store.list_jobs(limit=100)


def write(store: JobStore) -> None:
    put(store)


def close_beside(backend: Backend, work: Callable[[JobStore], None]) -> None:
    store = backend.open()
    for _ in range(30):
        put(store)
    began = threading.Barrier(3, timeout=30)
    reported: list[Exception] = []

    def go_on() -> None:
        work(store)
        began.wait()
        try:
            while True:
                work(store)
        except Exception as error:
            reported.append(error)

    threads = [threading.Thread(target=go_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    began.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert [type(error) for error in reported] == [DatabaseUnreachable] * 2, reported


@pytest.mark.parametrize("work", [read, write])
def test_closing_under_threads_at_work_ends_them_with_an_error_and_not_the_process(
    backend: Backend, work: Callable[[JobStore], None]
) -> None:
    def rounds() -> None:
        for _ in range(ROUNDS):
            close_beside(backend, work)

    assert in_child(rounds) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files where Linux shows them")
def test_threads_that_come_and_go_leave_no_connections_behind(tmp_path: Path) -> None:
    """On SQLite, where each read that is under way has a connection of its own."""
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.upgrade()
    held = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        thread = threading.Thread(target=read, args=(store,))
        thread.start()
        thread.join()
    assert len(os.listdir("/proc/self/fd")) <= held + 3, "a file, its log, and the log's index"
    store.close()


def test_closing_inside_a_transaction_waits_for_nobody(tmp_path: Path) -> None:
    """As a signal handler does that closes the app in the middle of a call. What is under way is committed."""
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    store.upgrade()
    assert isinstance(store, SqliteStore)
    database = store._sqlite

    def work(session: SqliteSession) -> None:
        session.run("record_migration", version=999)
        store.close()

    assert in_child(lambda: database.transact(work)) == 0  # a hang there ends with the test's time
    assert database.schema_version() == 999
    store.close()


def test_a_forked_child_does_not_call_into_its_parents_loop() -> None:
    called: list[int] = []
    listener = listen_here("a store of this test")
    listener.subscribe(lambda hint: called.append(os.getpid()))

    def notify_workers() -> None:
        notify_here("a store of this test")
        assert called == []

    assert in_child(notify_workers) == 0
    notify_here("a store of this test")
    assert called == [os.getpid()]
