"""What OpenAPI says of the routes is what they do: schemathesis tries every one of them, with what fits and what does
not, against a running server on each store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.backends import Backend
from tests.surfaces.http.conftest import Server

CONFIG = """
[generation]
allow-x00 = true
max-examples = {examples}

[parameters]
"query.wait" = 0

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "404", "409", "422"]
"""
"""What fits the schema may still be refused: a job that is not there, a task that is not registered, a rate that is no
rate. Nobody waits here: a wait of a minute for each of many groups would try nothing else."""

ENDLESS = "/watch$"
"""A stream ends with its job, which may be never; test_watching.py reads them."""


def attack(server: Server, folder: Path, examples: int, patience: float, *more: str) -> None:
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.format(examples=examples))
    command = [
        *(str(Path(sys.executable).with_name("st")), "--config-file", str(config)),
        *("run", f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {server.token('admin')}"),
        *("--checks", "all", "--exclude-path-regex", ENDLESS, "--request-timeout", "30"),
        *("--warnings", "off", "--no-color", "--continue-on-failure", *more),
    ]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=patience
    )
    assert ran.returncode == 0, f"{ran.stdout[-20_000:]}\n{ran.stderr[-2000:]}"


@pytest.mark.slow
@pytest.mark.timeout(300)  # a loaded machine takes four times as long as an idle one
def test_every_route_does_what_its_schema_says(server: Server, backend: Backend, tmp_path: Path):
    """Most of what the coverage phase tries is refused before a store is asked, so one store is enough for it here; the
    soak has all on both."""
    phases = "coverage,fuzzing,stateful" if backend.name == "sqlite" else "examples,fuzzing,stateful"
    attack(server, tmp_path, 1, 280, "--seed", "1", "--phases", phases)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_every_route_does_what_its_schema_says_a_thousand_times(server: Server, tmp_path: Path):
    attack(server, tmp_path, 1000, 7100)


def test_every_route_is_described_with_its_problems_and_an_example_of_each_body(admin: httpx2.Client):
    described = admin.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert "Problem" in described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            probe = path in ("/livez", "/readyz")
            assert {"401", "403", "404", "421", "422"} <= operation["responses"].keys(), where
            assert operation.get("security", []) != [] or probe, where
            assert operation.get("description") or operation["summary"], where
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                name = (schema.get("$ref") or schema["allOf"][0]["$ref"]).rpartition("/")[2]
                assert described["components"]["schemas"][name]["examples"], where
