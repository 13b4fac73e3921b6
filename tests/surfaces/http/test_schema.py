"""What OpenAPI says of the routes is what they do: schemathesis tries every one of them, with what fits and what does
not, against a running server on each store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.backends import Backend
from tests.measured import Page
from tests.surfaces.serving import Server

ROOT = Path(__file__).parents[3]

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


def attack(server: Server, folder: Path, examples: int, patience: float, *more: str) -> str:
    """What it printed."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.format(examples=examples))
    command = [
        *(str(Path(sys.executable).with_name("st")), "--config-file", str(config)),
        *("run", f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {server.token('admin')}"),
        *("--checks", "all", "--request-timeout", "30"),
        *("--warnings", "off", "--no-color", "--continue-on-failure", *more),
    ]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=patience
    )
    assert ran.returncode == 0, f"{ran.stdout[-20_000:]}\n{ran.stderr[-2000:]}"
    return ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)  # a loaded machine takes four times as long as an idle one
def test_every_route_does_what_its_schema_says(server: Server, backend: Backend, tmp_path: Path):
    """Most of what the coverage phase tries is refused before a store is asked, so one store is enough for it here; the
    soak has all on both."""
    phases = "coverage,fuzzing,stateful" if backend.name == "sqlite" else "examples,fuzzing,stateful"
    attack(server, tmp_path, 1, 280, "--seed", "1", "--phases", phases, "--exclude-path-regex", ENDLESS)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_route_does_what_its_schema_says_a_thousand_times(
    server: Server, admin: httpx2.Client, backend: Backend, tmp_path: Path
):
    """Route by route, then all of them in chains. What is done is kept in build/soak: an interrupted run goes on."""
    database = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[backend.name]
    done = Done(ROOT / "build" / "soak" / f"http-{backend.name}.json")
    paths = admin.get("/openapi.json").json()["paths"]
    routes = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    watched = [route for route in routes if not route.endswith("/watch")]
    parts = {route: ("--phases", "coverage,fuzzing", "--include-name", route) for route in watched}
    parts["chains"] = ("--phases", "stateful", "--exclude-path-regex", ENDLESS)
    for part, chosen in parts.items():
        if part not in done.cases:
            print(f"{backend.name}: {part}, {len(done.cases)} of {len(parts)} done", flush=True)
            began = time.monotonic()
            reported = attack(server, tmp_path, 1000, 3600, *chosen)
            done.add(part, _generated(reported), time.monotonic() - began)
            MEASURED.put(
                database, len(done.cases), len(parts), sum(done.cases.values()), f"{done.seconds / 60:.1f}"
            )


MEASURED = Page(
    "http-schema.md",
    "The HTTP API against what OpenAPI says of it",
    "Written by `make soak` (tests/surfaces/http/test_schema.py): schemathesis with all checks and NUL bytes, up to\n"
    "1,000 cases for each route besides its coverage phase, then 1,000 chains of requests. No 5xx, and no answer that\n"
    "the schema does not describe. A part is a route, or the chains.",
    ("database", "parts done", "of", "cases", "minutes"),
)


class Done:
    """The cases of each part that is done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else {"cases": {}, "seconds": 0.0}
        self.cases: dict[str, int] = found["cases"]
        self.seconds: float = found["seconds"]

    def add(self, part: str, cases: int, seconds: float) -> None:
        self.cases[part] = cases
        self.seconds += seconds
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps({"cases": self.cases, "seconds": self.seconds}))
        draft.replace(self._path)


def _generated(reported: str) -> int:
    found = re.search(r"([\d,]+) generated", reported)
    assert found, reported[-2000:]
    return int(found[1].replace(",", ""))


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
