from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.runners.docker.runner import DockerRunner
from tests.runners.docker.engine import PrivateEngine
from tests.runners.docker.lab import HOST, DockerLab


@pytest.fixture
def lab(tmp_path: Path, docker_engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerLab]:
    """Whatever a test does, the engine must not have started a run twice."""
    monkeypatch.setenv(HOST, docker_engine.host)
    lab = DockerLab(tmp_path)
    yield lab
    lab.clean_up()
    twice = {name: count for name, count in lab.recorded_starts().items() if count > 1}
    assert twice == {}


@pytest.fixture
def runner(lab: DockerLab) -> DockerRunner:
    return lab.runner()
