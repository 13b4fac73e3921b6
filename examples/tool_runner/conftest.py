"""A database and a Docker engine for each test, and the application on both."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.tool_runner.fleet import Fleet, wait_for
from tests.conftest import docker_engine, postgres_server
from tests.runners.docker.engine import IMAGE, Engine, PrivateEngine, recorded_starts

__all__ = ["docker_engine", "postgres_server"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the tables in it: to copy it is quicker than to make them."""
    folder = tmp_path_factory.mktemp("made")
    with Fleet(f"sqlite:///{folder}/runs.db", folder, RUNNER="docker"):
        return folder / "runs.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_file"), tmp_path / "runs.db")
        return f"sqlite:///{tmp_path}/runs.db"
    server = request.getfixturevalue("postgres_server")
    return str(server.create_database(f"tool_runner_{next(_numbers)}"))


class Docker:
    """What the engine itself knows of our containers."""

    def __init__(self, host: str) -> None:
        self.engine = Engine(host)

    def containers(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """Of one run, or of all; running or not."""
        label = "run_id" if run_id is None else f"run_id={run_id}"
        found = self.engine.call(
            "GET", "/containers/json", {"all": 1, "filters": json.dumps({"label": [label]})}
        )
        return list(found.json())

    def begun(self, *run_ids: str) -> None:
        """Wait until a container of each runs."""
        for run_id in run_ids:
            wait_for(
                lambda run_id=run_id: any(found["State"] == "running" for found in self.containers(run_id)),
                f"a container of {run_id}",
            )

    def notify_workers(self, *run_ids: str) -> None:
        """The tool `sleep` has slept enough, and comes to its end."""
        for container in (found for run_id in run_ids for found in self.containers(run_id)):
            requested = {"Cmd": ["killall", "sleep"]}
            made = self.engine.call("POST", f"/containers/{container['Id']}/exec", body=requested).json()
            self.engine.call("POST", f"/exec/{made['Id']}/start", body={"Detach": True})

    def remove(self, run_id: str | None = None) -> None:
        for container in self.containers(run_id):
            self.engine.call(
                "DELETE", f"/containers/{container['Id']}", {"force": 1, "v": 1}, allow=(404, 409)
            )

    def starts(self, run_ids: list[str]) -> Counter[str]:
        """How often the engine has started a container for each of these runs."""
        counted: Counter[str] = Counter()
        for run_id in run_ids:
            counted[run_id] = sum(recorded_starts(self.engine, f"run_id={run_id}").values())
        return counted


@pytest.fixture
def docker(docker_engine: PrivateEngine) -> Iterator[Docker]:
    docker = Docker(docker_engine.host)
    yield docker
    docker.remove()


@pytest.fixture
def start(url: str, tmp_path: Path, docker: Docker, docker_engine: PrivateEngine) -> Callable[..., Fleet]:
    """`with start(RUNNER_QUEUE_ENABLED="false") as fleet:` the application, set up and not running yet."""
    settings = {
        "DOCKER_HOST": docker_engine.host,
        "RUNNER": "docker",
        "RUNNER_IMAGE": IMAGE,
        "RUNNER_LEASE_TTL_SECONDS": "2",
        "RUNNER_RETRY_BACKOFF_SECONDS": "6",
    }
    return lambda **more: Fleet(url, tmp_path, **settings | more)


class Observer:
    """Looks at both tables all the time, until the block ends; then they must never have disagreed."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.looks = 0
        self.seen: list[Any] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._is_over.wait(0.05):
            try:
                self.seen += self.fleet.disagreements()
            except Exception as error:
                self.seen.append(error)
            self.looks += 1

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self.seen == []
        assert self.looks > 10
