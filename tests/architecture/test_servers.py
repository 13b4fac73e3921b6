"""The servers of the tests keep their own promises: real, restartable, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.servers import PostgresServer, why_unavailable

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("servers")]


@pytest.fixture(scope="module")
def psycopg():
    if (reason := why_unavailable(18)) is not None:
        pytest.skip(reason)
    import psycopg

    return psycopg


def test_a_server_keeps_port_and_data_over_restart_and_crash(psycopg, start_postgres):
    server = start_postgres()
    url, port = server.create_database('a "name" / with % marks'), server.port
    with psycopg.connect(url) as connection:
        connection.execute("create table kept (number int)")
        connection.execute("insert into kept values (1)")
    server.restart()
    server.restart("immediate")
    assert server.port == port
    with psycopg.connect(url) as connection:
        assert connection.execute("select number from kept").fetchall() == [(1,)]
        assert connection.execute("show fsync").fetchone() == ("on",)
    with psycopg.connect(server.url(tcp=True)) as connection:
        assert connection.info.host == "127.0.0.1"


def test_terminated_backends_are_gone_when_the_call_returns(psycopg, start_postgres):
    server = start_postgres(fsync=False)
    busy, calm = server.create_database("busy"), server.create_database("calm")
    with psycopg.connect(calm) as other, psycopg.connect(busy) as connection:
        assert server.terminate_backends("busy") == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
        assert server.terminate_backends("busy") == 0
        other.execute("select 1")
        assert server.terminate_backends() >= 1, "sessions of earlier calls may still be closing"
        with pytest.raises(psycopg.OperationalError):
            other.execute("select 1")
        assert server.terminate_backends("calm") == 0


def test_a_closed_server_leaves_no_process_and_no_folder(psycopg, start_postgres):
    server = start_postgres(fsync=False)
    pid = server.pid
    assert pid is not None
    server.close()
    server.close()
    assert not server.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


PROGRAM = """
import sys
from tests.servers import PostgresServer
server = PostgresServer(fsync=False).start()
print(server.pid, server.folder.parent, server._home._guard.pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ending", ["exit", "SIGINT", "SIGKILL"])
def test_however_the_test_process_ends_nothing_is_left(psycopg, ending: str):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with process:
        pid, folder, guard = process.stdout.readline().split()
        os.kill(int(pid), 0)
        # The guard ends last, so its end is the signal that all is done.
        if ending == "exit":
            process.stdin.close()
        else:
            process.send_signal(signal.Signals[ending])
        process.wait()
    wait_for_end(int(guard))
    assert not Path(folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def wait_for_end(pid: int) -> None:
    """Wait for a process that is no child of ours."""
    if hasattr(os, "pidfd_open"):
        import select

        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            assert select.select([descriptor], [], [], 60)[0], "the guard does not end"
        finally:
            os.close(descriptor)
    else:
        import time

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        raise AssertionError("the guard does not end")


def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match="not 9"):
        PostgresServer(9)


class TestSchemas:
    """Each test gets a schema of its own in a database that all share."""

    seen: set[str] = set()  # noqa: RUF012  shared by the repetitions on purpose

    @pytest.mark.parametrize("repetition", range(45))
    def test_every_test_gets_a_fresh_schema(self, psycopg, postgres_url, postgres_schema, repetition):
        assert postgres_schema not in self.seen
        self.seen.add(postgres_schema)
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"create schema {postgres_schema} create table jobs (id int primary key)")

    def test_schemas_of_earlier_tests_are_dropped_in_batches(self, psycopg, postgres_url):
        with psycopg.connect(postgres_url) as connection:
            query = "select count(*) from pg_namespace where nspname = any(%s)"
            [left] = connection.execute(query, [list(self.seen)]).fetchone()
        assert left < 20
