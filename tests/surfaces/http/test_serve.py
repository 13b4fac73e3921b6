"""`leasehold serve`: as a process, and what it refuses to do."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.serve import ServeSettings
from tests.backends import Backend
from tests.surfaces.cli.conftest import (  # noqa: F401 - fixtures
    Answer,
    Cli,
    here,
    logging_as_it_was,
    read_until,
    stop,
    tasks,
)
from tests.surfaces.cli.conftest import app as commanded_app  # noqa: F401 - a fixture
from tests.surfaces.serving import PATIENCE
from tests.workers import wait_for

KILLED = """
import os, signal
from leasehold import Leasehold
from leasehold.operations.operations import Operations

app = Leasehold(schema=os.environ.get("LEASEHOLD_SCHEMA", "leasehold"))

@app.task
def add(a: int, b: int = 1) -> int:
    return a + b

enqueue_once = Operations.enqueue_once

def then_die(self, *args):
    enqueue_once(self, *args)
    os.kill(os.getpid(), signal.SIGKILL)

if "DIE" in os.environ:
    Operations.enqueue_once = then_die
"""


@pytest.fixture
def cli(tasks: Path, backend: Backend):  # noqa: F811 - the fixture
    made = Cli(tasks, {"LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema})
    tasks.joinpath("killed.py").write_text(KILLED)
    yield made
    made.end()


def url_of(process: subprocess.Popen[str]) -> str:
    found = re.search(r"listening on (http://\S+)", read_until(process, "stderr", "listening on"))
    assert found
    return found[1]


def test_it_serves_runs_jobs_and_ends_well(cli: Cli):
    process = cli.start("serve", "cli_tasks:app", "--port", "0", "--with-worker")
    with httpx2.Client(base_url=url_of(process), timeout=PATIENCE) as client:
        made = client.post("/v1/jobs", json={"task": "add", "args": {"a": 1, "b": 2}}).json()
        assert client.get(f"/v1/jobs/{made['id']}/result", params={"wait": 60}).json()["result"] == 3
        # It tells of itself from another thread than it takes jobs in.
        wait_for(lambda: client.get("/readyz").json()["checks"]["workers"] == "ok")
    code, err = stop(process, signal.SIGTERM)
    assert code == 0, err


def test_it_takes_as_many_requests_as_it_was_told_to(cli: Cli):
    process = cli.start("serve", "cli_tasks:app", "--port", "0", "--rate-limit", "0.001")
    with httpx2.Client(base_url=url_of(process), timeout=30) as client:
        assert [client.get("/v1/jobs").status_code for _ in range(2)] == [200, 429]
    assert stop(process)[0] == 0


def test_a_request_whose_server_was_killed_before_it_answered_is_repeated_without_a_second_job(cli: Cli):
    body = {"task": "add", "args": {"a": 1}}
    headers = {"Idempotency-Key": "order-17"}
    doomed = cli.start("serve", "killed:app", "--port", "0", DIE="1")
    with (
        httpx2.Client(base_url=url_of(doomed), timeout=PATIENCE) as client,
        pytest.raises(httpx2.TransportError),
    ):
        client.post("/v1/jobs", json=body, headers=headers)
    assert doomed.wait(PATIENCE) == -signal.SIGKILL
    process = cli.start("serve", "killed:app", "--port", "0")
    with httpx2.Client(base_url=url_of(process), timeout=PATIENCE) as client:
        (stored,) = client.get("/v1/jobs").json()["jobs"]
        again = client.post("/v1/jobs", json=body, headers=headers)
        assert (again.status_code, again.json()) == (200, {"id": stored["id"], "created": True})
        assert again.headers["idempotent-replayed"] == "true"
        other = client.post("/v1/jobs", json={**body, "args": {"a": 2}}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
        assert len(client.get("/v1/jobs").json()["jobs"]) == 1
    assert stop(process)[0] == 0


def test_it_does_not_open_itself_to_a_network_without_tokens(
    commanded_app,  # noqa: F811 - the fixture
    here: Callable[..., Answer],  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    tmp_path.joinpath("open_door.py").write_text("from leasehold import Leasehold\napp = Leasehold()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    serve = ("serve", "open_door:app", "--host", "192.0.2.1")
    refused = here(*serve)
    assert refused.code == 2
    assert "there is no token" in refused.err
    assert here("tokens", "create", "ci", "--scope", "read").code == 0
    here("tokens", "revoke", "ci")
    assert here(*serve).code == 2, "one that counts no more does not help"
    nameless = here("serve", "open_door:app", "--host", "0.0.0.0")
    assert nameless.code == 2
    assert "--allow-host" in nameless.err
    assert here("tokens", "create", "ci2", "--scope", "read").code == 0
    ServeSettings(host="192.0.2.1").check(commanded_app)
    with pytest.raises(InvalidInput):
        ServeSettings(host="::").check(commanded_app)


@pytest.mark.parametrize(
    ("host", "tokens"),
    [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("::", True), ("10.0.0.1", True),
     ("example.org", True), ("127.0.0.1.example.org", True)],
)  # fmt: skip
def test_only_on_loopback_no_token_is_asked_for(host: str, tokens: bool):
    assert ServeSettings(host=host).tokens is tokens
    assert ServeSettings(host=host, require_tokens=True).tokens is True
