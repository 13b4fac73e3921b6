"""The official conformance suite of the protocol, its scenarios for tasks, against a server as users start it."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from leasehold import Leasehold
from tests.surfaces.cli.conftest import Cli, stop
from tests.surfaces.http.test_serve import url_of
from tests.surfaces.mcp.test_processes import APP, ROOT, cli  # noqa: F401 - a fixture

PACKAGES = ("node@22.23.3", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
"""The suite needs a newer Node than Debian has."""
PLACE = ROOT / "build" / "conformance"
SCENARIOS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
"""All but tasks-status-notifications, which is an empty frame in the suite so far."""


@pytest.fixture(scope="session")
def suite() -> list[str]:
    """The command, installed once by whichever test process comes first."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    node = PLACE / "node_modules" / "node" / "bin" / "node"
    main = PLACE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (node.exists() and main.exists()):
            install = [
                npm,
                "install",
                "--prefix",
                str(PLACE),
                "--no-save",
                "--no-audit",
                "--no-fund",
                *PACKAGES,
            ]
            done = subprocess.run(install, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"npm install failed: {done.stderr[-500:]}")
    return [str(node), str(main), "server"]


@pytest.mark.slow(14)
@pytest.mark.one_store("postgres")
@pytest.mark.timeout(600)
def test_every_scenario_for_tasks_passes(app: Leasehold, cli: Cli, suite: list[str], tmp_path: Path):  # noqa: F811 - the fixture
    process = cli.start("serve", APP, "--port", "0", "--mcp", "--with-worker")
    url = f"{url_of(process)}/mcp"
    failed: dict[str, str] = {}
    for scenario in SCENARIOS:
        command = [*suite, "--url", url, "--scenario", scenario, "--timeout", "120000"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        passed = re.search(r"Passed: (\d+)/(\d+), 0 failed", done.stdout)
        if passed is None or passed[1] != passed[2] or passed[1] == "0":
            failed[scenario] = done.stdout[-3000:] + done.stderr[-1000:]
    assert failed == {}
    assert stop(process)[0] == 0
