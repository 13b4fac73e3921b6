"""Where the docker runner is tried: see `tests/runners/conformance.py`."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from leasehold.runners.docker.runner import SITE, DockerRunner
from leasehold.runners.docker.spec import ContainerSpec, Mount
from tests.runners.conformance import Lab
from tests.runners.docker.engine import IMAGE, recorded_starts

HOST = "LEASEHOLD_TEST_DOCKER_HOST"
"""How starters in other processes find the engine."""


class DockerLab(Lab):
    pace = 5.0
    rounds = 4

    def runner(self) -> DockerRunner:
        return DockerRunner(self.place / "runs", os.environ[HOST], mounts_allowed=[self.place])

    def spec(self, script: str, output_limit: int = 1024 * 1024, **more: Any) -> ContainerSpec:
        settings = {
            "image": IMAGE,
            "argv": ["sh", "-c", script],
            "env": {"MARKS": "/marks"},
            "mounts": [Mount(self.marks, "/marks", read_only=False)],
            "output_limit": output_limit,
        }
        return ContainerSpec(**(settings | more))

    def is_alive(self, name: str, pid: str) -> bool:
        """Numbers are the container's own: whether anything of it lives."""
        container = self.facts(name)["Id"]
        return any(container in read(path) for path in Path("/proc").glob("[0-9]*/cgroup"))

    def facts(self, name: str) -> dict[str, Any]:
        runner = self.runner()
        return runner.engine.call("GET", f"/containers/{runner.container_name(name)}/json").json()

    def delete_by_hand(self, name: str) -> None:
        runner = self.runner()
        runner.engine.call("DELETE", f"/containers/{runner.container_name(name)}", {"force": 1})

    def recorded_starts(self) -> Counter[str]:
        site = self.place / "runs" / ".site"
        return (
            recorded_starts(self.runner().engine, f"{SITE}={site.read_text()}")
            if site.exists()
            else Counter()
        )

    def clean_up(self) -> None:
        engine = self.runner().engine
        for listed in engine.call("GET", "/containers/json", {"all": 1}).json():
            engine.call("DELETE", f"/containers/{listed['Id']}", {"force": 1, "v": 1}, allow=(404, 409))


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
