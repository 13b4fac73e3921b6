"""The whole application as processes, on SQLite and on PostgreSQL, each with a Valkey server of its own."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
from rq.serializers import JSONSerializer

from tests.servers import PostgresServer, why_unavailable

from .client import Client
from .processes import Processes, until

QUICK = {"LEASE_SECONDS": "3", "POLL_SECONDS": "0.3", "RETRY_SECONDS": "0.3", "MAX_ATTEMPTS": "50"}


@dataclass
class Stage:
    processes: Processes
    client: Client
    redis: redis.Redis
    queue: rq.Queue

    def deliver_again(self, run_id: str, times: int) -> None:
        """As a queue may that delivers at least once."""
        for _ in range(times):
            self.queue.enqueue("examples.model_runs.worker.execute_run", run_id, result_ttl=0)

    def ensure_workers(self, *names: str) -> None:
        """These RQ workers and no others."""
        processes = self.processes
        for name in [name for name in processes.live if name.startswith("worker") and name not in names]:
            processes.kill(name)
        for name in names:
            if name not in processes.live:
                processes.start_worker(name)

    def restart(self, name: str) -> None:
        starts: dict[str, Callable[[], object]] = {
            "redis": self.processes.start_redis,
            "api": self.processes.start_api,
        }
        starts["deliver"] = lambda: self.processes.start_deliver()
        starts.get(name, lambda: self.processes.start_worker(name))()

    @contextmanager
    def api_with(self, **settings: str) -> Iterator[None]:
        """Another API process for a while, with these settings."""
        before = dict(self.processes.settings)
        self.processes.settings |= settings
        self.processes.kill("api")
        self.processes.start_api()
        try:
            yield
        finally:
            self.processes.settings |= before
            self.processes.kill("api")
            self.processes.start_api()

    def wait_for_attempt(self, run_id: str, number: int) -> dict[str, Any]:
        """Its row, once the model of this attempt has begun."""
        until(
            lambda: any(f"run {run_id} attempt {number} " in line for line in self.starts()),
            "its model begins",
        )
        return self.client.run(run_id)

    def result_file(self, reference: str) -> Path:
        (path,) = (self.processes.folder / "results").rglob(reference)
        return path

    def starts(self) -> list[str]:
        """A line for each run that has begun, from every worker: `run ID attempt N token T`."""
        logs = [path.read_text(errors="replace") for path in self.processes.folder.glob("worker*.log")]
        return [
            line for log in logs for line in log.splitlines() if line.startswith("run ") and " token " in line
        ]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def whole_stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp(f"model_runs_{request.param}")
    server = None
    if request.param == "postgres":
        if (reason := why_unavailable(18)) is not None:
            pytest.skip(reason)
        server = PostgresServer(18, fsync=False).start()
        url = server.create_database("model_runs")
    else:
        url = f"sqlite:///{folder}/model_runs.db"
    try:
        with Processes(folder, LEASEHOLD_URL=url, LEASEHOLD_SCHEMA="leasehold", **QUICK) as processes:
            client = redis.Redis.from_url(processes.start_redis())
            queue = rq.Queue("model_runs", connection=client, serializer=JSONSerializer)
            api = Client(processes.start_api())
            processes.start_deliver()
            yield Stage(processes, api, client, queue)
            client.close()
    finally:
        if server is not None:
            server.close()


@pytest.fixture
def stage(whole_stage: Stage) -> Stage:
    whole_stage.ensure_workers("worker-1")
    return whole_stage


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Said on failure, so that it can be repeated."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    request.node.add_report_section("setup", "chance", f"SEED={seed}")
    return random.Random(seed)
