"""Agent servers as processes, and requests to them: how `show.py` and the tests see the application."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
"""Seconds for what must happen. A loaded machine is slow; a wait ends as soon as it has happened."""

Answer = dict[str, Any]


class Server:
    """One server process, and what it says on its standard error."""

    def __init__(self, log: Path, settings: dict[str, str]) -> None:
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.agent_server"],
                cwd=ROOT,
                env={**os.environ, "PORT": "0", **settings},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server has not come up:\n{log.read_text()}")
        self.worker_id, _, self.url = line.strip().partition(" listens on ")

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Its exit code. uvicorn ends by the signal that it was sent."""
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    # -- requests ---------------------------------------------------------------------------------------------------
    def ask(self, method: str, path: str, tenant: str | None, body: Any = None) -> tuple[int, Answer]:
        headers = {"Content-Type": "application/json", **({"X-Tenant": tenant} if tenant else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def create(self, target: str, *turns: Answer, tenant: str = "acme", **more: Any) -> str:
        """The id of a new job."""
        status, job = self.ask("POST", f"/targets/{target}/jobs/", tenant, {"turns": turns, **more})
        assert status == 201, job
        return str(job["id"])

    def job(self, target: str, job_id: str, tenant: str = "acme") -> Answer:
        status, job = self.ask("GET", f"/targets/{target}/jobs/{job_id}/", tenant)
        assert status == 200, job
        return job

    def post(self, target: str, job_id: str, verb: str, tenant: str = "acme") -> Answer:
        """`cancel`, `resume`, `resolve` or `enqueue`."""
        status, job = self.ask("POST", f"/targets/{target}/jobs/{job_id}/{verb}/", tenant)
        assert status == 200, job
        return job

    def wait_for(self, target: str, job_id: str, *statuses: str, tenant: str = "acme") -> Answer:
        """Until its status is one of these."""
        return until(
            lambda: (job := self.job(target, job_id, tenant))["status"] in statuses and job,
            lambda: f"{target} should be {statuses}: {self.job(target, job_id, tenant)}",
        )


class Fleet:
    """The servers of one database."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.transcript = folder / "transcript.jsonl"
        self.settings = {
            "LEASEHOLD_URL": f"sqlite:///{folder}/agents.db",
            "HEARTBEAT_SECONDS": "1",  # a kill is noticed sooner
            "TRANSCRIPT": str(self.transcript),
            **settings,
        }
        self.servers: list[Server] = []

    def start(self, **settings: str) -> Server:
        log = self.folder / f"server-{len(self.servers)}.log"
        self.servers.append(Server(log, {**self.settings, **settings}))
        return self.servers[-1]

    def lines(self) -> list[Answer]:
        """What all agents have written down, in the order in which they did."""
        text = self.transcript.read_text() if self.transcript.exists() else ""
        return [json.loads(line) for line in text.splitlines()]


@contextmanager
def fleet(folder: Path, **settings: str) -> Iterator[Fleet]:
    """Whatever happens, no process is left."""
    made = Fleet(folder, **settings)
    try:
        yield made
    finally:
        for server in made.servers:
            if server.process.poll() is None:
                server.kill()


def until(happens: Callable[[], Any], what: Callable[[], str], patience: float = PATIENCE) -> Any:
    """Wait for a condition, and give back what it gave."""
    deadline = time.monotonic() + patience
    while not (found := happens()):
        if time.monotonic() > deadline:
            raise AssertionError(what())
        time.sleep(0.05)
    return found
