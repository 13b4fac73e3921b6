"""Two verbs at once, in an order that the test chooses.

The first verb is stopped after all its writes and before its commit; the second is started meanwhile, and either
gets through (it passes over locked rows) or waits for the first; then the first commits. Nothing is left to chance
and nothing waits for a while: on PostgreSQL a trigger holds the first transaction back by an advisory lock and
pg_locks tells who waits; on SQLite the connection of the first store stands still before COMMIT and that of the
second tells when it asks for the write lock.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, put

PATIENCE = 20.0
LOOK_EVERY = 0.002
_ADVISORY = 470_001

_OWNERS = ("w1", "w2", "w3", "thief", "worker-1", "worker-2")

Verb = Callable[[], Any]


class Referee(Protocol):
    """Stops the first store before its commit, and knows when another one waits for it."""

    def stopped(self, job_id: str, at_write: bool) -> Any: ...

    def has_arrived(self) -> bool: ...

    def is_waiting(self) -> bool: ...


class Race:
    """`one` is the store whose verb is stopped, `two` and `three` are those of other processes."""

    def __init__(self, one: JobStore, two: JobStore, three: JobStore, referee: Referee) -> None:
        self.one, self.two, self.three = one, two, three
        self._referee = referee
        self._threads = ThreadPoolExecutor(4)

    def run(self, job_id: str, first: Verb, second: Verb, *, at_write: bool = False) -> tuple[Any, Any]:
        """`first` writes; `second` comes; `first` commits. An error is an answer too."""
        with self.before_commit(job_id, first, at_write=at_write) as answer:
            other = self.meanwhile(second)
        return _answer(answer), _answer(other)

    @contextmanager
    def before_commit(self, job_id: str, first: Verb, *, at_write: bool = False) -> Iterator[Future[Any]]:
        """Inside the block `first` has written `job_id` and not committed. `at_write`: it is stopped at the write of
        the row itself, for a transaction that will be rolled back."""
        with self._referee.stopped(job_id, at_write):
            answer = self._threads.submit(first)
            self._until(lambda: self._referee.has_arrived() or answer.done(), "the first verb never wrote")
            assert not answer.done(), f"the first verb was not held back: {_answer(answer)!r}"
            yield answer
        wait([answer], PATIENCE)

    def meanwhile(self, verb: Verb) -> Future[Any]:
        """Start a verb of another store: on return it is done, or it waits for the first."""
        answer = self._threads.submit(verb)
        self._until(lambda: answer.done() or self._referee.is_waiting(), "neither done nor waiting")
        return answer

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _until(self, condition: Callable[[], bool], complaint: str) -> None:
        pause = threading.Event()
        for _ in range(int(PATIENCE / LOOK_EVERY)):
            if condition():
                return
            pause.wait(LOOK_EVERY)
        raise AssertionError(complaint)


def _answer(future: Future[Any]) -> Any:
    error = future.exception(PATIENCE)
    return error if error is not None else future.result()


@contextmanager
def open_race(backend: Backend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Race]:
    if backend.name == "sqlite":
        gates = [_Gate(), _Gate(), _Gate()]
        stores = [_open_gated(backend, clock, gate, monkeypatch) for gate in gates]
        referee: Referee = SqliteReferee(gates)
    else:
        stores = [backend.open(clock) for _ in range(3)]
        referee = PostgresReferee(backend)
    for store in stores:
        # So that no store has to make a gate, or to number an owner, in the middle of a race: each is a transaction of
        # its own, and the referee would stop the first store there.
        store.cancel(put(store).id)
        for worker in _OWNERS:
            store.adopt(worker, ["nowhere"])
    one, two, three = stores
    race = Race(one, two, three, referee)
    try:
        yield race
    finally:
        race.close()
        if isinstance(referee, PostgresReferee):
            referee.close()


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


_PLACES = {"ready": "seq", "lane_place": "seq", "lease": "job", "parked": "job", "outcome": "job"}
_TRIGGERS = {
    f"stand_still_{'at_write' if at_write else 'at_commit'}_{place}": (place, key, at_write)
    for place, key in _PLACES.items()
    for at_write in (True, False)
}


class PostgresReferee:
    """Whoever writes a place of the job that `standing` names waits for an advisory lock: at the write, or at its
    commit."""

    def __init__(self, backend: Backend) -> None:
        import psycopg

        self._backend = backend
        self._connection = psycopg.connect(backend.url, autocommit=True)
        self._run("CREATE TABLE leasehold.standing (job_id uuid, at_write boolean)")
        for name, (place, key, at_write) in _TRIGGERS.items():
            when = "NOT DEFERRABLE" if at_write else "DEFERRABLE INITIALLY DEFERRED"
            self._run(
                f"""CREATE OR REPLACE FUNCTION leasehold.{name}() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    PERFORM pg_advisory_xact_lock_shared({_ADVISORY})
                    FROM leasehold.standing AS s JOIN leasehold.job AS j ON j.id = s.job_id
                    WHERE j.seq = NEW.{key} AND s.at_write = {at_write};
                    RETURN NULL;
                END $$;
                CREATE CONSTRAINT TRIGGER {name} AFTER INSERT OR UPDATE ON leasehold.{place} {when}
                FOR EACH ROW EXECUTE FUNCTION leasehold.{name}()"""
            )

    @contextmanager
    def stopped(self, job_id: str, at_write: bool) -> Iterator[None]:
        self._run(f"INSERT INTO leasehold.standing VALUES ('{job_id}', {at_write})")
        self._run(f"SELECT pg_advisory_lock({_ADVISORY})")
        try:
            yield
        finally:
            self._run("DELETE FROM leasehold.standing")
            self._run(f"SELECT pg_advisory_unlock({_ADVISORY})")

    def has_arrived(self) -> bool:
        return self._count("locktype = 'advisory'") > 0

    def is_waiting(self) -> bool:
        return self._count("locktype <> 'advisory'") > 0

    def close(self) -> None:
        # Waits for both transactions: the tables are theirs until they have ended.
        for name, (place, _, _) in _TRIGGERS.items():
            self._run(f"SET lock_timeout = '20s'; DROP TRIGGER {name} ON leasehold.{place}")
        self._run("DROP TABLE leasehold.standing")
        self._connection.close()

    def _count(self, which: str) -> int:
        found = self._connection.execute(
            f"SELECT count(*) FROM pg_locks WHERE NOT granted AND {which}".encode()
        )
        return int(found.fetchall()[0][0])

    def _run(self, text: str) -> None:
        self._connection.execute(text.replace("leasehold.", f'"{self._backend.schema}".').encode())


# -- SQLite ------------------------------------------------------------------------------------------------------------


class _Gate:
    """What the test and a connection tell each other."""

    def __init__(self) -> None:
        self.closed = False
        self.arrived = threading.Event()
        self.requested = threading.Event()
        self.may_go = threading.Event()


class SqliteReferee:
    def __init__(self, gates: list[_Gate]) -> None:
        self._first, *self._others = gates

    @contextmanager
    def stopped(self, job_id: str, at_write: bool) -> Iterator[None]:
        self._first.closed = True
        for gate in self._others:
            gate.requested.clear()
        try:
            yield
        finally:
            self._first.closed = False
            self._first.may_go.set()

    def has_arrived(self) -> bool:
        return self._first.arrived.is_set()

    def is_waiting(self) -> bool:
        return any(gate.requested.is_set() for gate in self._others)


def _open_gated(
    backend: Backend, clock: ManualClock, gate: _Gate, monkeypatch: pytest.MonkeyPatch
) -> JobStore:
    class Gated(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE":
                gate.requested.set()
            if sql in ("COMMIT", "ROLLBACK") and gate.closed:
                gate.arrived.set()
                assert gate.may_go.wait(PATIENCE)
            return super().execute(sql, *values)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "Connection", Gated)  # the store opens its writer with the rest
        return backend.open(clock)
