"""The database is there but takes no writes, or no connections. Results that were computed are kept meanwhile."""

from __future__ import annotations

import contextlib
import errno
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from leasehold.worker.attempts import LEAST_SETTLES
from tests.disks import fill, small_disk
from tests.faults.conftest import MakePlace
from tests.faults.harness import Fleet, Place, WorkerProcess, check, wait_for
from tests.servers import PostgresServer

HASTE = 15.0
"""Seconds in which a process that waits for nothing goes on, on a machine that is busy."""

LEASE = 30.0
"""Longer than the trouble: the leases outlive it, so every result must count."""


class Trouble:
    """Begins and ends by the test's word."""

    def begin(self, worker: WorkerProcess) -> None: ...

    def end(self) -> None: ...


def work_through(place: Place, trouble: Trouble, *, others: bool = True) -> None:
    """Results computed during the trouble are kept, and are the only ones."""
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start()
        jobs = [
            *(place.tasks.wait_on_loop.enqueue("go") for _ in range(5)),
            *(place.tasks.wait_in_thread.enqueue("go") for _ in range(3)),
        ]
        for job in jobs:
            place.wait_for_start(job.id)
        waiting = [place.tasks.brief.enqueue(0) for _ in range(5)] if others else []
        for job in waiting:
            place.wait_for_state(job.id, "succeeded")
        trouble.begin(worker)
        try:
            place.open_gate("go-1")
            wait_for(lambda: all(r.how for r in place.log.runs()), "the handlers to end")
            worker.wait_until_it_says("kept until the database takes them")
            assert {place.row(job.id).state for job in jobs} == {"running"}
        finally:
            trouble.end()
        for job in jobs:
            done = place.wait_for_state(job.id, "succeeded")
            assert (done.attempt, done.failures, done.crashes) == (1, 0, 0)
        worker.wait_until_it_says("the database is back")
        after = place.tasks.brief.enqueue(0)
        place.wait_for_state(after.id, "succeeded")
        every = [job.id for job in (*jobs, *waiting, after)]
        figures = check(place, every, fleet)
        assert (figures.runs, figures.lost) == (len(every), 0)
        assert worker.alive
        assert not worker.said("refused, lease")
        assert fleet.unexpected() == []


# --- SQLite ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


class FullDisk(Trouble):
    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._ballast = disk / "ballast"

    def begin(self, worker: WorkerProcess) -> None:
        fill(self._disk)
        with pytest.raises(OSError, match="space") as full:
            (self._ballast.with_suffix(".more")).write_bytes(bytes(1 << 13))
        assert full.value.errno == errno.ENOSPC

    def end(self) -> None:
        self._ballast.unlink()


class NoGrowth(Trouble):
    """Where no disk can be mounted: the worker's files may not grow, by a limit that the kernel enforces."""

    def __init__(self, database: Path) -> None:
        self._log = database.with_name(database.name + "-wal")

    def begin(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._limit(self._log.stat().st_size)

    def end(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self._worker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.timeout(90)
def test_results_survive_a_full_disk_on_sqlite(disk: Path | None, make_place: MakePlace) -> None:
    if disk is None:
        pytest.skip("only root may mount a small file system")
    work_through(make_place("sqlite", lease=LEASE, url=f"sqlite:///{disk}/jobs.db"), FullDisk(disk))


@pytest.mark.timeout(90)
def test_results_survive_files_that_may_not_grow_on_sqlite(tmp_path: Path, make_place: MakePlace) -> None:
    file = tmp_path / "jobs.db"
    work_through(make_place("sqlite", lease=LEASE, url=f"sqlite:///{file}"), NoGrowth(file))


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


class ReadOnly(Trouble):
    """As after a failover to a standby that is not promoted yet: sessions may read, and no more."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def begin(self, worker: WorkerProcess) -> None:
        self._set("on")

    def end(self) -> None:
        self._set("off")

    def _set(self, value: str) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(
                sql.SQL("ALTER DATABASE jobs SET default_transaction_read_only = {}").format(sql.SQL(value))
            )
        # A session takes the setting when it begins.
        self._server.terminate_backends("jobs")


class NoConnections(Trouble):
    """No connection is left for the worker: as when others have taken all, with the same error (53300)."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def begin(self, worker: WorkerProcess) -> None:
        self._limit(0)
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'worker'"
            )
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            psycopg.connect(self._server.url("jobs").replace("postgres@", "worker@"))

    def end(self) -> None:
        self._limit(-1)

    def _limit(self, number: int) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(f"ALTER ROLE worker CONNECTION LIMIT {number}".encode())


@pytest.mark.timeout(90)
@pytest.mark.xdist_group("database-trouble")
def test_results_survive_a_read_only_window_on_postgres(
    make_place: MakePlace, start_postgres: Callable[..., PostgresServer]
) -> None:
    server = start_postgres(fsync=False)
    place = make_place("postgres", lease=LEASE, url=server.create_database("jobs"))
    work_through(place, ReadOnly(server))


@pytest.mark.timeout(90)
@pytest.mark.xdist_group("database-trouble")
def test_results_survive_a_server_that_is_out_of_connections(
    make_place: MakePlace, start_postgres: Callable[..., PostgresServer]
) -> None:
    server = start_postgres(fsync=False)
    direct = server.create_database("jobs")
    with psycopg.connect(server.url("jobs"), autocommit=True) as connection:
        connection.execute("CREATE ROLE worker LOGIN")
        connection.execute("GRANT ALL ON DATABASE jobs TO worker")
    place = make_place("postgres", lease=LEASE, url=direct.replace("postgres@", "worker@"), admin_url=direct)
    for task in ("TABLES", "SEQUENCES"):
        place.query(f"GRANT ALL ON ALL {task} IN SCHEMA leasehold TO worker")
    place.query("GRANT USAGE ON SCHEMA leasehold TO worker")
    work_through(place, NoConnections(server))


@pytest.mark.slow(7)
@pytest.mark.timeout(120)
@pytest.mark.xdist_group("database-trouble")
def test_an_outage_longer_than_the_lease_loses_no_job(
    make_place: MakePlace, start_postgres: Callable[..., PostgresServer]
) -> None:
    """Results are settled if nobody took the job over meanwhile, and reported as refused if somebody did."""
    server = start_postgres(fsync=False)
    place = make_place("postgres", lease=1.5, url=server.create_database("jobs"))
    with contextlib.closing(Fleet(place)) as fleet:
        workers = fleet.start_many(2)
        jobs = [place.tasks.ignore_the_stop.enqueue("go") for _ in range(6)]
        for job in jobs:
            place.wait_for_start(job.id)
        stops_at = max(run.started for run in place.log.runs()) + 2 * place.lease
        server.stop("fast")
        for attempt in range(1, 10):  # on a loaded machine two may not be enough
            place.open_gate(f"go-{attempt}")
        wait_for(lambda: all(r.how for r in place.log.runs()), "the handlers to end")
        wait_for(lambda: time.monotonic() > stops_at, "two leases to pass")
        server.start()
        for job in jobs:
            place.wait_for_state(job.id, "succeeded")
        check(place, [job.id for job in jobs], fleet)
        assert fleet.alive == workers
        assert fleet.unexpected() == []


@pytest.mark.slow(9)
@pytest.mark.timeout(90)
@pytest.mark.xdist_group("database-trouble")
def test_a_worker_that_drains_while_the_database_is_away_ends_in_time_and_says_what_is_left(
    make_place: MakePlace, start_postgres: Callable[..., PostgresServer]
) -> None:
    """Sooner than a supervisor loses its patience, and not as if all were well."""
    server = start_postgres(fsync=False)
    place = make_place("postgres", lease=30.0, url=server.create_database("jobs"))
    with contextlib.closing(Fleet(place)) as fleet:
        worker = fleet.start(shutdown_grace=1.0)
        job = place.tasks.wait_on_loop.enqueue("go")
        place.wait_for_start(job.id)
        server.stop("immediate")
        place.open_gate("go-1")
        worker.wait_until_it_says("kept until the database takes them")
        # When the grace is over a claim that hangs and the last results each get a few seconds more, and no more.
        worker.terminate()
        worker.wait_until_it_says("draining")
        drains_at = time.monotonic()
        worker.wait_until_it_says("1 result(s) could not be settled", 2 * LEAST_SETTLES + HASTE)
        assert worker.wait(HASTE) == 75
        assert time.monotonic() - drains_at >= 1.0, "it had its grace"
        assert worker.said("1 result(s) could not be settled")
        assert fleet.unexpected() == []
        server.start()
        assert place.row(job.id).state == "running"
