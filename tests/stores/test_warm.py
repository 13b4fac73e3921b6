"""The connection that stays out of the pool between two uses is nobody's loss."""

from __future__ import annotations

import threading
import time

import pytest

from leasehold.domain.errors import DatabaseUnreachable
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from tests.backends import Backend

pytestmark = pytest.mark.parametrize("backend", ["postgres"], indirect=True)


def who(session: PostgresSession) -> int:
    return session._connection.info.backend_pid


def test_one_caller_stays_with_one_connection_though_the_pool_has_more(backend: Backend) -> None:
    database = PostgresDatabase(backend.url, backend.schema)
    together = threading.Barrier(2, timeout=10)
    threads = [
        threading.Thread(target=lambda: database.single(lambda session: together.wait())) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({database.single(who) for _ in range(6)}) == 1
    database.close()


def test_those_who_wait_for_the_pool_get_what_is_given_back(backend: Backend) -> None:
    """With a single connection, and more callers than it can serve at once."""
    database = PostgresDatabase(backend.url, backend.schema, pool_size=1)
    served: list[int] = []

    def call() -> None:
        for _ in range(20):
            served.append(database.single(who))
            time.sleep(0)

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(served) == 100
    assert len(set(served)) == 1
    database.close()


def test_a_closed_database_serves_nobody_and_leaves_no_connection(backend: Backend) -> None:
    database = PostgresDatabase(backend.url, backend.schema)
    pid = database.single(who)
    database.close()
    with pytest.raises(DatabaseUnreachable):
        database.single(who)
    left = "SELECT count(*) FROM pg_stat_activity WHERE pid = ?"
    deadline = time.monotonic() + 10
    while backend.query(left, pid) != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
