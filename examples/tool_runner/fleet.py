"""The application as processes, for show.py and the tests: start them, kill them, ask the API, look at both tables."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.ports import claim_port

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
T = TypeVar("T")


def wait_for(look: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:g} s for {what}")
        time.sleep(0.05)
    return found


class Fleet:
    """All of it on one database. Leaving the block ends every process, by its own id."""

    def __init__(self, url: str, folder: Path, **environment: str) -> None:
        self.url = url
        self.folder = folder
        self.environment = {
            **os.environ, "LEASEHOLD_URL": url, "LEASEHOLD_EXECUTIONS": str(folder / "runs"), **environment,
        }  # fmt: skip
        self.processes: list[subprocess.Popen[bytes]] = []
        self.port = claim_port()

    def __enter__(self) -> Fleet:
        """The tables, unless somebody has made them before."""
        if self.url.startswith("postgres") or not Path(self.url.removeprefix("sqlite:///")).exists():
            assert self._start("setup").wait(PATIENCE) == 0, self.said()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            self.kill(process)

    def _start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "examples.tool_runner", *arguments],
                cwd=ROOT,
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        return self._start("worker", **environment)

    def start_api(self, **environment: str) -> subprocess.Popen[bytes]:
        process = self._start("api", "--port", str(self.port), **environment)

        def answers() -> bool:
            assert process.poll() is None, self.said()
            with contextlib.suppress(OSError):
                return self.ask("/tool-runs")[0] == 200
            return False

        wait_for(answers, "the API")
        return process

    def reap(self) -> bool:
        """What every worker does every few seconds, once by hand: clear the leases that have run out."""
        command = [sys.executable, "-m", "leasehold", "db", "sweep", "--url", self.url]
        subprocess.run(command, cwd=ROOT, env=self.environment, check=True, capture_output=True)
        return True

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL: it can do nothing about it."""
        process.kill()
        process.wait()

    def said(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in self.folder.glob("*.log"))

    # -- the API

    def ask(self, path: str, body: Any = None, method: str | None = None) -> tuple[int, Any]:
        """Status and answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.loads(refusal.read()) | {"headers": dict(refusal.headers)}

    def request(self, tool: str, argument: str = "", **more: Any) -> str:
        status, run = self.ask("/tool-runs", {"tool": tool, "argument": argument, **more})
        assert status == 202, run
        return str(run["run_id"])

    def run(self, run_id: str) -> dict[str, Any]:
        status, run = self.ask(f"/tool-runs/{run_id}")
        assert status == 200, run
        return dict(run)

    def job(self, run_id: str) -> dict[str, Any]:
        status, job = self.ask(f"/tool-run-jobs/{run_id}")
        assert status == 200, job
        return dict(job)

    def wait_for_status(self, run_id: str, *statuses: str) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run["status"] in statuses else None

        return wait_for(reached, f"run {run_id} to be {' or '.join(statuses)}")

    # -- both tables

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """One statement is one moment: it sees both tables as they are together."""
        if self.url.startswith("sqlite"):
            with contextlib.closing(
                sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)
            ) as connection:
                return connection.execute(statement).fetchall()
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def count(self, table: str) -> int:
        return int(self.query(f"SELECT count(*) FROM {table}")[0][0])

    def disagreements(self) -> list[tuple[Any, ...]]:
        """Runs of which the two tables do not tell the same, or that only one of them knows."""
        return self.query("""
            SELECT coalesce(r.run_id, j.run_id), r.status, j.status FROM tool_runs AS r
            FULL JOIN tool_run_jobs AS j ON j.run_id = r.run_id
            WHERE r.run_id IS NULL OR j.run_id IS NULL OR r.status <> j.status
                OR r.requested_at <> j.created_at OR (r.started_at IS NULL) <> (j.started_at IS NULL)
                OR r.started_at <> j.started_at OR (r.finished_at IS NULL) <> (j.finished_at IS NULL)
                OR r.finished_at <> j.finished_at""")
