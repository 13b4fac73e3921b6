"""Where a benchmark works: an empty or crowded database of its own on a durable server, or a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.backgrounds import KIND, QUEUE
from leasehold import Leasehold
from leasehold.domain.job import NewJob
from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.tasks.blueprint import new_ids
from tests.plans import postgres, sqlite
from tests.servers import PostgresServer

ROOT = Path(__file__).resolve().parents[1]
BULK = 1000
CLAIM = 500
FINISHED_AT_ONCE = 100_000


class Place:
    """One store, with a background or without. Drains follow each other in it: what is done is done."""

    def __init__(self, name: str, url: str, scene: postgres.Scene | sqlite.Scene) -> None:
        self.name = name
        self.url = url
        self.scene = scene
        self.store: JobStore = scene.store

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    def load(self, background: str, rows: int) -> None:
        self.scene.load(background, rows)

    def finish(self, jobs: int) -> None:
        """So many finished ones that have really been enqueued, claimed and settled. Rows that are loaded at once leave
        a little room on every page, as no such life does: the next jobs would go there, each to a page of its own, and
        after a checkpoint each such page is logged whole."""
        for start in range(0, jobs, FINISHED_AT_ONCE):
            some = min(FINISHED_AT_ONCE, jobs - start)
            self._enqueue(some)
            self.drain_bare(some)

    def fill(self, jobs: int, *, task: str = KIND, lanes: int = 0) -> float:
        """Store jobs; the seconds it took."""
        seconds = self._enqueue(jobs, task=task, lanes=lanes)
        self._settle_down()
        return seconds

    def _enqueue(self, jobs: int, *, task: str = KIND, lanes: int = 0) -> float:
        ids = new_ids(jobs)
        made = [
            NewJob(id=job_id, task=task, queue=QUEUE, args="{}", lane=f"lane-{n % lanes}" if lanes else None)
            for n, job_id in enumerate(ids)
        ]
        began = time.perf_counter()
        for start in range(0, jobs, BULK):
            self.store.enqueue(made[start : start + BULK])
        return time.perf_counter() - began

    def drain(self, jobs: int, **options: Any) -> dict[str, Any]:
        """By a worker process; what it tells of itself, with the rate and the start-up."""
        spawned = time.time()
        reported = run_worker(url=self.url, jobs=jobs, **options)
        reported["rate"] = jobs / (reported["done"] - reported["began"][0])
        reported["start"] = reported["began"][0] - spawned
        return reported

    def drain_bare(self, jobs: int) -> float:
        """By the same statements in a loop: claims on one connection, settles on another. Jobs a second."""
        done = 0
        with ThreadPoolExecutor(1) as settling:
            waiting = None
            began = time.perf_counter()
            while grants := self.store.claim("bare", [QUEUE], CLAIM, [KIND]):
                endings = [Ending(grant.id, grant.token, Success(), grant.seq) for grant in grants]
                if waiting is not None:
                    waiting.result()
                waiting = settling.submit(self.store.settle, endings)
                done += len(grants)
            if waiting is not None:
                waiting.result()
            seconds = time.perf_counter() - began
        assert done == jobs, f"{done} of {jobs} were there"
        return jobs / seconds

    def _settle_down(self) -> None:
        """Statistics as a database that runs for long has them, and no checkpoint in the middle of a drain."""
        if isinstance(self.scene, postgres.Scene):
            self.scene.vacuum()
            self.scene.run("CHECKPOINT")

    def close(self) -> None:
        self.store.close()
        self.scene.connection.close()


@contextmanager
def durable_server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=True) as server:
        yield server


def postgres_place(server: PostgresServer, name: str) -> Place:
    url = server.create_database(name)
    return Place(name, url, postgres.Scene(url, "leasehold", durable=True))


def sqlite_place(folder: Path, name: str) -> Place:
    path = folder / f"{name}.db"
    with Leasehold(f"sqlite:///{path}") as app:
        app.upgrade()
    return Place(name, f"sqlite:///{path}", sqlite.Scene(path))


def run_worker(**options: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.worker_main", json.dumps(options)]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    reported: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reported


def start_worker(**options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.worker_main", json.dumps(options)]
    return subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True)


def _environment() -> dict[str, str]:
    """Modules are compiled once, as everywhere else: without that a third of a start-up is the compiler's."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}


def server_version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return str(connection.info.server_version // 10000)
