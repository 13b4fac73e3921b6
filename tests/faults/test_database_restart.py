"""PostgreSQL goes away and comes back while workers drain it. They stay, and nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable

import psycopg
import pytest

from tests.faults.conftest import MakePlace
from tests.faults.harness import LOOK_EVERY, Fleet, Place, check
from tests.faults.pgbouncer import PgBouncer, ensure_pgbouncer
from tests.servers import Mode, PostgresServer

JOBS = 1000
AWAY = 1.0
"""Seconds that the server is away each time."""
STOPS: tuple[Mode, ...] = ("fast", "immediate", "fast")


class Chaos:
    """Spread over the drain: three stops, and a random session ended about every 300 ms."""

    def __init__(self, server: PostgresServer, place: Place, seed: int) -> None:
        self._server = server
        self._place = place
        self._rng = random.Random(seed)
        self.terminated = 0
        self.stops: list[Mode] = []

    def run_until_drained(self, seconds: float) -> None:
        deadline, next_end = time.monotonic() + seconds, 0.0
        while (left := self._left()) > 0:
            assert time.monotonic() < deadline, f"{left} jobs are left after {seconds:g} s"
            # At three quarters, at half and at a quarter of the work.
            if len(self.stops) < len(STOPS) and left < JOBS * (3 - len(self.stops)) / 4:
                self._stop(STOPS[len(self.stops)])
            elif time.monotonic() >= next_end:
                self._terminate_one()
                next_end = time.monotonic() + self._rng.uniform(0.0, 0.6)
            else:
                time.sleep(LOOK_EVERY)  # often: the last quarter of the work takes less than a second

    def _stop(self, mode: Mode) -> None:
        self._server.stop(mode)
        back_at = time.monotonic() + AWAY
        while time.monotonic() < back_at:
            time.sleep(LOOK_EVERY)
        self._server.start()
        self.stops.append(mode)

    def _left(self) -> int:
        # The test's own session may be the one that has just been ended.
        with contextlib.suppress(psycopg.OperationalError):
            return self._place.unfinished()
        return JOBS

    def _terminate_one(self) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            sessions = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
                " AND datname = 'jobs' AND pid <> pg_backend_pid() ORDER BY pid"
            ).fetchall()
            if sessions:
                connection.execute("SELECT pg_terminate_backend(%s)", self._rng.choice(sessions))
                self.terminated += 1


def drain_under_chaos(server: PostgresServer, place: Place, seed: int, **options: str) -> None:
    rng = random.Random(seed)
    made = []
    for _ in range(0, JOBS, 500):
        lengths = [{"seconds": rng.uniform(0.0, 0.2)} for _ in range(500)]
        made += place.tasks.brief.enqueue_many(lengths[:400])
        made += place.tasks.brief_in_thread.enqueue_many(lengths[400:])
    started = time.monotonic()
    with contextlib.closing(Fleet(place)) as fleet:
        workers = fleet.start_many(3, concurrency=12, threads=4, **options)
        chaos = Chaos(server, place, seed)
        chaos.run_until_drained(100)
        figures = check(place, [job.id for job in made], fleet)
        assert chaos.stops == list(STOPS)
        assert chaos.terminated >= 5
        assert fleet.alive == workers, "a worker ended, or had to be restarted"
        assert fleet.unexpected() == []
        spent = time.monotonic() - started
        refused = fleet.count_said("refused, lease")
        print(f"\n{figures}, {refused} refused, {chaos.terminated} sessions ended, {spent:.1f} s")


@pytest.mark.slow(15)
@pytest.mark.timeout(150)
def test_a_drain_survives_three_restarts_of_postgres_and_ended_sessions(
    make_place: MakePlace, start_postgres: Callable[..., PostgresServer]
) -> None:
    server = start_postgres(fsync=True)
    place = make_place("postgres", lease=3.0, url=server.create_database("jobs"))
    drain_under_chaos(server, place, seed=5)


@pytest.mark.slow(20)
@pytest.mark.timeout(150)
def test_the_same_drain_through_pgbouncer_in_transaction_mode(
    make_place: MakePlace, start_postgres: Callable[..., PostgresServer]
) -> None:
    if (reason := ensure_pgbouncer()) is not None:
        pytest.skip(reason)
    server = start_postgres(fsync=True)
    direct = server.create_database("jobs")
    with PgBouncer(server, "jobs") as bouncer:
        place = make_place("postgres", lease=3.0, url=bouncer.url, admin_url=direct)
        before = bouncer.transactions()
        drain_under_chaos(server, place, seed=6, listen_url=direct)
        assert bouncer.transactions() - before > JOBS / 50, "the work did not go through the pooler"
