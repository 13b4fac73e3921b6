"""How often a read asks the server and waits: each time costs a network's delay."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from leasehold.domain.errors import JobNotFound, ReadTooSlow
from leasehold.domain.states import State
from leasehold.operations.local import reads_within
from leasehold.stores.postgres import connections
from leasehold.stores.postgres.connections import STATEMENT_SECONDS
from leasehold.stores.postgres.store import PostgresStore
from tests.backends import new_job
from tests.servers import PostgresServer


class Relay:
    """Between one client and the server; it counts how often the client speaks after the server has."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.turns = 0
        self._server_spoke = True
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._serve)

    def close(self) -> None:
        # A shutdown ends the calls that wait for them; a close does not.
        for end in (self._listener, *self._ends):
            _shut_down(end)
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, call: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=call, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._ends += [client, server]
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target, is_client in ((client, server, True), (server, client, False)):
                    self._start(self._pass, source, target, is_client)

    def _pass(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    self.turns += is_client and self._server_spoke
                    self._server_spoke = not is_client
                target.sendall(data)
        for end in (source, target):
            _shut_down(end)


def _shut_down(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(postgres_server: PostgresServer) -> Iterator[Relay]:
    made = Relay("127.0.0.1", postgres_server.port)
    yield made
    made.close()


@pytest.fixture
def store(relay: Relay, postgres_url: str, postgres_schema: str) -> Iterator[PostgresStore]:
    """With one connection, through the relay."""
    url = make_conninfo(postgres_url, host="127.0.0.1", port=relay.port)
    made = PostgresStore(url, postgres_schema, pool_size=1)
    made.upgrade()
    yield made
    made.close()


def turns(relay: Relay, read: Callable[[], object]) -> int:
    """On the average: the end of one answer may be counted with the next."""
    before = relay.turns
    for _ in range(20):
        read()
    return round((relay.turns - before) / 20)


def test_a_limit_of_time_costs_a_read_one_more_round_trip(
    store: PostgresStore, relay: Relay, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "PLANS_LAST", 1e9)  # throwing plans away costs one by itself
    job = new_job()
    store.enqueue([job])
    for _ in range(10):  # so does the driver's preparing of the statement
        store.get(job.id)
    assert turns(relay, lambda: store.get(job.id)) == 1
    with reads_within(10):
        assert turns(relay, lambda: store.get(job.id)) == 2, "BEGIN and the limit go with the statement"


def test_the_connection_is_as_it_was_after_a_read_that_was_too_slow_or_found_nothing(
    store: PostgresStore, postgres_url: str, postgres_schema: str
):
    job = new_job()
    store.enqueue([job])
    with psycopg.connect(postgres_url) as other, reads_within(0.2):
        other.execute(f'LOCK TABLE "{postgres_schema}".job IN ACCESS EXCLUSIVE MODE'.encode())
        with pytest.raises(ReadTooSlow):
            store.get(job.id)
    with reads_within(10), pytest.raises(JobNotFound):
        store.get(new_job().id)
    with reads_within(10):
        assert store.get(job.id).id == job.id
    assert store.get(job.id).id == job.id
    assert store.cancel(job.id).state is State.CANCELLED
    with store._postgres.connections.pool.connection() as connection:
        (limit,) = connection.execute("SHOW statement_timeout").fetchone()
    assert limit == f"{STATEMENT_SECONDS}s"
