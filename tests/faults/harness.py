"""Real worker processes, and what is done to them: killed, frozen, told to end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leasehold import Leasehold
from leasehold.domain.errors import DatabaseUnreachable
from leasehold.domain.job import Job
from tests.faults.side_log import Run
from tests.faults.tasks import register
from tests.launcher import launch
from tests.workers import LOOK_EVERY, PATIENCE, wait_for

ROOT = Path(__file__).parents[2]


class Place:
    """A database, a folder for gates and logs, and an app that enqueues and looks."""

    def __init__(
        self, store: str, url: str, schema: str, folder: Path, lease: float, admin_url: str | None = None
    ) -> None:
        self.store = store
        self.url = url
        self.schema = schema
        self.folder = folder
        self.lease = lease
        self._admin_url = admin_url or url
        """Where the test itself looks, past whatever stands in the workers' way."""
        self.app = Leasehold(self._admin_url, schema=schema)
        self.app.upgrade()
        self.tasks = register(self.app, folder, lease)
        self.log = self.tasks.log
        _install_audit(self)

    @property
    def sqlite_file(self) -> str | None:
        return self.url.removeprefix("sqlite:///") if self.store == "sqlite" else None

    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Tables are written as `leasehold.job`."""
        if self.store == "sqlite":
            connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)
            try:
                with connection:
                    return connection.execute(text.replace("leasehold.", "leasehold_"), values).fetchall()
            finally:
                connection.close()
        import psycopg

        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            named = text.replace("leasehold.", f'"{self.schema}".').replace("?", "%s")
            cursor = connection.execute(named.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def row(self, job: str) -> Job:
        """Read again if the test's own connection was cut: what is done to the database is not done to the test."""

        def read() -> Job | None:
            with contextlib.suppress(DatabaseUnreachable):
                return self.app.__internals__.store.get(job)
            return None

        return wait_for(read, f"job {job} to be read")

    def open_gate(self, name: str) -> None:
        self.tasks.gate(name).touch()

    def close_gate(self, name: str) -> None:
        self.tasks.gate(name).unlink(missing_ok=True)

    def unfinished(self) -> int:
        """By the places where they are: the view would be read to its last finished job, at every look."""
        places = ("ready", "lane_place", "lease", "parked", "outcome WHERE state = 4")
        counts = (f"(SELECT count(*) FROM leasehold.{place})" for place in places)
        return int(self.query(f"SELECT {' + '.join(counts)}")[0][0])

    def wait_for_state(self, job: str, *states: str, seconds: float = PATIENCE) -> Job:
        deadline = time.monotonic() + seconds
        while (row := self.row(job)).state.value not in states:
            assert time.monotonic() < deadline, f"waited {seconds:g} s to see {states}: {row}"
            time.sleep(LOOK_EVERY)
        return row

    def wait_for_start(self, job: str, attempt: int = 1) -> Run:
        def started() -> Run | None:
            return next((run for run in self.log.of(job) if run.attempt == attempt), None)

        return wait_for(started, f"attempt {attempt} of job {job} to start")

    def close(self) -> None:
        self.log.close()
        self.app.close()


class WorkerProcess:
    def __init__(self, number: int, place: Place, module: str, config: dict[str, Any]) -> None:
        self.log = place.folder / f"worker-{number}.log"
        self.frozen = False
        self._file = place.sqlite_file
        with self.log.open("wb") as stderr:
            self.process = launch(
                [sys.executable, "-m", module, json.dumps(config)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # a Ctrl-C in the terminal is for the tests
            )
        self.pid = self.process.pid
        self.died_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def ready(self) -> bool:
        return self.said("ready")

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def wait_until_it_says(self, text: str, seconds: float = PATIENCE) -> None:
        def said_or_dead() -> bool:
            dead = not self.alive  # looked at first: its last words count
            if not self.said(text):
                assert not dead, f"worker {self.pid} has ended without {text!r}:\n{self._last_words()}"
                return False
            return True

        wait_for(said_or_dead, f"worker {self.pid} to say {text!r}; {self.log}", seconds)

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def kill(self) -> None:
        """As a power cut would."""
        self.process.kill()
        self.wait()

    def freeze(self) -> None:
        freeze(self.pid, self._file)
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code."""
        code = self.process.wait(seconds)
        if self.died_at is None:
            self.died_at = time.monotonic()
            if self.process.stdin is not None:
                self.process.stdin.close()
        return code

    def _signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def freeze(pid: int, sqlite_file: str | None) -> None:
    """Returns when the process stands still: threads already on a CPU take a moment. Never in the middle of a write to
    a SQLite file: frozen with the only lock there is, it would keep everybody else from writing."""
    with contextlib.nullcontext() if sqlite_file is None else _nobody_writes(sqlite_file):
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: _stands_still(pid), f"process {pid} to freeze")


@contextlib.contextmanager
def _nobody_writes(sqlite_file: str) -> Iterator[None]:
    with contextlib.closing(
        sqlite3.connect(sqlite_file, timeout=PATIENCE, isolation_level=None)
    ) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def _stands_still(pid: int) -> bool:
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:  # a thread has just ended
        return False
    return all(state in "TtZ" for state in states)


class Fleet:
    """The workers of one test. What is still there at its end is killed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.all: list[WorkerProcess] = []
        self._numbers = itertools.count(1)
        self._cold: list[tuple[float, WorkerProcess]] = []
        self.kills = self.freezes = 0

    def start(
        self,
        *,
        url: str | None = None,
        listen_url: str | None = None,
        deaf: bool = False,
        module: str = "tests.faults.worker_main",
        wait: bool = True,
        **settings: Any,
    ) -> WorkerProcess:
        config = {
            "url": url or self.place.url,
            "schema": self.place.schema,
            "listen_url": listen_url,
            "folder": str(self.place.folder),
            "lease": self.place.lease,
            "deaf": deaf,
            "settings": {"sweep": 0.3, "shutdown_grace": 30.0, **settings},
        }
        worker = WorkerProcess(next(self._numbers), self.place, module, config)
        self.all.append(worker)
        if wait:
            worker.wait_until_it_says("ready")
        return worker

    def start_many(self, number: int, **options: Any) -> list[WorkerProcess]:
        workers = [self.start(wait=False, **options) for _ in range(number)]
        for worker in workers:
            worker.wait_until_it_says("ready")
        return workers

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self.all if worker.alive]

    def kill_until(
        self,
        done: Callable[[], bool],
        what: str,
        *,
        every: float,
        seconds: float,
        freeze_for: float | None = None,
        busiest: bool = False,
        **options: Any,
    ) -> None:
        """Kill a random worker every so often, and start another in its place. With `freeze_for` every second one is
        frozen that long instead, and comes back to its old work. With `busiest` it is every other time the one that
        has begun a job last."""
        deadline = time.monotonic() + seconds
        next_blow = time.monotonic() + every
        unfair = False
        """A worker may be struck at any moment, but on a slow machine not always before it has begun to work."""
        while not done():
            assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
            self._thaw(until=time.monotonic())
            warm = [worker for worker in self.alive if not worker.frozen]
            fair = sum(worker.ready for worker in warm) >= max(2, len(warm) - 1)
            if time.monotonic() < next_blow or len(warm) < 2 or not (fair or unfair):
                time.sleep(LOOK_EVERY)
                continue
            unfair = random.random() < 0.2
            victim = self._busiest(warm) if busiest and self.kills % 2 else random.choice(warm)
            if freeze_for is not None and self.kills > self.freezes:
                victim.freeze()
                self.freezes += 1
                self._cold.append((time.monotonic() + freeze_for, victim))
            else:
                victim.kill()
                self.kills += 1
                self.start(wait=False, **options)
            # A slow machine must not strike twice without a pause.
            next_blow = max(next_blow + every, time.monotonic() + every / 2)
        self._thaw(until=float("inf"))

    def _busiest(self, workers: list[WorkerProcess]) -> WorkerProcess:
        pids = [run.pid for run in self.place.log.runs()]
        return max(
            workers,
            key=lambda worker: max((n for n, pid in enumerate(pids) if pid == worker.pid), default=-1),
        )

    def _thaw(self, until: float) -> None:
        for at, worker in list(self._cold):
            if at <= until:
                self._cold.remove((at, worker))
                worker.thaw()

    def deaths(self) -> dict[int, float]:
        return {worker.pid: worker.died_at for worker in self.all if worker.died_at is not None}

    def count_said(self, text: str) -> int:
        return sum(worker.log.read_text(errors="replace").count(text) for worker in self.all)

    def unexpected(self) -> list[str]:
        """Tracebacks in the workers' logs: a fault may cost time, but not surprise."""
        return [
            f"{worker.log}: {block}"
            for worker in self.all
            for block in worker.log.read_text(errors="replace").split("Traceback (most recent")[1:]
        ]

    def close(self) -> None:
        for worker in self.alive:
            worker.process.kill()
        for worker in self.all:
            worker.wait()


# --- what the database itself has seen ------------------------------------------------------------------------------

_AUDIT = {
    "sqlite": """
        CREATE TABLE leasehold_grant_log (id INTEGER PRIMARY KEY, job TEXT, what TEXT, token INTEGER, owner TEXT);
        CREATE TRIGGER audit_grant AFTER INSERT ON leasehold_lease BEGIN
            INSERT INTO leasehold_grant_log (job, what, token, owner) VALUES
                ((SELECT id FROM leasehold_job WHERE seq = new.job), 'grant', new.token,
                 (SELECT name FROM leasehold_worker_name WHERE number = new.worker));
        END;
        CREATE TRIGGER audit_end AFTER DELETE ON leasehold_lease BEGIN
            INSERT INTO leasehold_grant_log (job, what, token, owner) VALUES
                ((SELECT id FROM leasehold_job WHERE seq = old.job), 'end', old.token,
                 (SELECT name FROM leasehold_worker_name WHERE number = old.worker));
        END;
        CREATE TRIGGER audit_success AFTER INSERT ON leasehold_outcome WHEN new.state = 1 BEGIN
            INSERT INTO leasehold_grant_log (job, what, token) VALUES
                ((SELECT id FROM leasehold_job WHERE seq = new.job), 'success', new.token);
        END;
    """,
    "postgres": """
        CREATE TABLE leasehold.grant_log (id bigserial PRIMARY KEY, job uuid, what text, token bigint, owner text);
        CREATE FUNCTION leasehold.audit_lease() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE lease leasehold.lease := CASE TG_OP WHEN 'INSERT' THEN new ELSE old END;
        BEGIN
            INSERT INTO leasehold.grant_log (job, what, token, owner) VALUES
                ((SELECT id FROM leasehold.job WHERE seq = lease.job), TG_ARGV[0], lease.token,
                 (SELECT name FROM leasehold.worker_name WHERE number = lease.worker));
            RETURN NULL;
        END $$;
        CREATE TRIGGER audit_grant AFTER INSERT ON leasehold.lease FOR EACH ROW
        EXECUTE FUNCTION leasehold.audit_lease('grant');
        CREATE TRIGGER audit_end AFTER DELETE ON leasehold.lease FOR EACH ROW
        EXECUTE FUNCTION leasehold.audit_lease('end');
        CREATE FUNCTION leasehold.audit_success() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO leasehold.grant_log (job, what, token) VALUES
                ((SELECT id FROM leasehold.job WHERE seq = new.job), 'success', new.token);
            RETURN NULL;
        END $$;
        CREATE TRIGGER audit_success AFTER INSERT ON leasehold.outcome FOR EACH ROW WHEN (new.state = 1)
        EXECUTE FUNCTION leasehold.audit_success();
    """,
}


def _install_audit(place: Place) -> None:
    """Triggers write down every grant, every end of one and every success, whoever made it and whatever became of the
    job later."""
    if place.store == "sqlite":
        connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
        connection.executescript(_AUDIT["sqlite"])
        connection.close()
    else:
        place.query(_AUDIT["postgres"])


@dataclass(frozen=True, slots=True)
class Figures:
    jobs: int
    runs: int
    grants: int
    lost: int
    overlaps: int
    kills: int
    freezes: int

    def __str__(self) -> str:
        return ", ".join(f"{value} {name}" for name, value in asdict(self).items())


def check(
    place: Place,
    jobs: Iterable[str],
    fleet: Fleet,
    *,
    expect: str = "succeeded",
    cancelled: Container[str] = frozenset(),
) -> Figures:
    """Rows, trigger and side log must tell the same story: nothing lost, nothing settled twice, nothing run twice
    under one lease, and no two runs of one job at once unless the first had lost its lease. Those in `cancelled` were
    told to end: they may have, or have succeeded before."""
    wanted = set(jobs)
    rows = place.query(
        "SELECT id, state, attempt, lease_token, settled_token, settled_by, result FROM leasehold.job_row"
    )
    by_id = {str(row[0]): row for row in rows}
    assert set(by_id) == wanted, (
        f"{len(wanted - set(by_id))} jobs are gone, {len(set(by_id) - wanted)} are new"
    )
    moves: dict[str, list[tuple[Any, ...]]] = {job: [] for job in wanted}
    for job, *move in place.query("SELECT job, what, token, owner FROM leasehold.grant_log ORDER BY id"):
        moves[str(job)].append(tuple(move))
    history = place.query("SELECT job_id, token, event FROM leasehold.history")
    lost = {(str(job), token) for job, token, event in history if event == "lost"}
    # That a stop was asked for does not tell how the run ended.
    told_of = {(str(job), token) for job, token, event in history if not event.endswith("_requested")}
    runs: dict[str, list[Run]] = {job: [] for job in wanted}
    for run in place.log.runs():
        runs[run.job].append(run)
    deaths, overlaps, grants = fleet.deaths(), 0, 0
    for job, (_, state, attempt, token, settled_token, settled_by, result) in by_id.items():
        reported = f"job {job}: moves {moves[job]}, runs {runs[job]}"
        assert state == expect or (state == "cancelled" and job in cancelled), f"{state}, {reported}"
        succeeded = state == "succeeded"
        chain = moves[job]
        # Each grant takes the token one on and ends before the next one: none is used twice.
        leases = [move[:2] for move in chain if move[0] != "success"]
        assert leases == [(what, n) for n in range(1, token + 1) for what in ("grant", "end")], reported
        successes = [move[1] for move in chain if move[0] == "success"]
        assert successes == ([settled_token] if succeeded else []), reported
        granted = {move[1]: move[2] for move in chain if move[0] == "grant"}
        grants += len(granted)
        assert len(granted) == attempt, reported
        # User code ran at most once under each grant, and under no other token.
        tokens = [run.token for run in runs[job]]
        assert len(tokens) == len(set(tokens)), reported
        assert set(tokens) <= set(granted), reported
        if succeeded:
            # Whatever else was granted was given back or lost, and the history says so.
            assert all((job, other) in told_of for other in granted if other != settled_token), reported
            (winner,) = [run for run in runs[job] if run.token == settled_token]
            assert winner.how == "done", reported
            assert settled_by == granted[settled_token], reported
            assert _text(result) == f"{attempt}:{settled_token}" == f"{winner.attempt}:{winner.token}", (
                reported
            )
        for first, second in itertools.pairwise(runs[job]):
            if not _over(first, second.started, deaths):
                # A worker that was frozen just before it calls its handler starts after its successor.
                stale = min(first.token, second.token)
                assert (job, stale) in lost, f"two runs at once under a lease that was not lost; {reported}"
                overlaps += 1
    run = sum(map(len, runs.values()))
    return Figures(len(wanted), run, grants, len(lost), overlaps, fleet.kills, fleet.freezes)


def check_lane(runs: list[Run], deaths: dict[int, float]) -> None:
    """In order, and never two at once."""
    for first, second in itertools.pairwise(runs):
        assert second.note >= first.note, f"out of order: {second} after {first}"
        assert second.note - first.note <= 1, f"skipped: {second} after {first}"
        if second.note > first.note:
            assert first.how is not None, f"{second} started, but {first} never ended"
        assert _over(first, second.started, deaths), f"two at once: {first} and {second}"


def _over(run: Run, at: float, deaths: dict[int, float]) -> bool:
    ends = [end for end in (run.ended, deaths.get(run.pid)) if end is not None]
    return bool(ends) and min(ends) <= at


def _text(result: Any) -> Any:
    return json.loads(result) if isinstance(result, str) and result.startswith('"') else result
