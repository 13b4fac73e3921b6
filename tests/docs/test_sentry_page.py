"""docs/guides/sentry.md with the real SDK: what a worker of its programs sends, on both stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backends import Backend
from tests.docs.pages import write_files

pytestmark = [pytest.mark.slow(4), pytest.mark.one_store("sqlite")]

# The command line's own worker, and a transport that keeps what would be sent. The SDK would also import every library
# that it knows something about, and the tests' environment has many of them.
WORKER = """
import importlib, json, sys
import sentry_sdk
from sentry_sdk.transport import Transport

sent = []

class Kept(Transport):
    def capture_envelope(self, envelope):
        sent.extend(event for item in envelope.items if (event := item.get_event()) is not None)

def init(dsn, sentry=sentry_sdk.init, **said):
    assert dsn is None
    sentry(dsn="https://key@sentry.invalid/1", transport=Kept, auto_enabling_integrations=False, **said)

sentry_sdk.init = init

from leasehold.surfaces.cli.main import run
page = importlib.import_module(sys.argv[1])
jobs = [page.charge.enqueue(order).id for order in map(int, sys.argv[2:])]
code = run(["worker", f"{page.__name__}:app", "--burst", "--log-level", "info"])
sentry_sdk.flush()
print(json.dumps([jobs, sent], default=str))
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert write_files("guides/sentry.md", tmp_path) == ["shop.py", "shop_with_stacks.py"]
    tmp_path.joinpath("worker.py").write_text(WORKER)
    return tmp_path


def run(folder: Path, backend: Backend, module: str, *orders: int) -> tuple[list[str], list[dict[str, Any]]]:
    """The jobs, and the events that a worker has made of them."""
    kept = {name: value for name, value in os.environ.items() if name != "SENTRY_DSN"}
    done = subprocess.run(
        [sys.executable, "worker.py", module, *map(str, orders)],
        cwd=folder,
        env={**kept, "LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    jobs, events = json.loads(done.stdout.splitlines()[-1])
    return jobs, events


def test_a_job_that_fails_for_good_is_one_event_with_its_job_as_a_tag(backend: Backend, folder: Path):
    jobs, events = run(folder, backend, "shop", 7, 8)
    assert sorted(event["tags"]["job"] for event in events) == sorted(jobs)
    event, other = sorted(events, key=lambda event: jobs.index(event["tags"]["job"]))
    assert (event["level"], event["logger"]) == ("error", "leasehold.jobs")
    assert event["tags"] == {
        "job": jobs[0], "task": "charge", "attempt": "2", "queue": "default", "lease": "2",
    }  # fmt: skip
    assert event["fingerprint"] == other["fingerprint"] == ["leasehold", "charge", "RuntimeError"]
    text = event["logentry"]["formatted"]
    assert f"job {jobs[0]} (charge): attempt 2 failed: RuntimeError: no card for order 7" in text
    assert "in charge" in text


def test_what_a_handler_logs_as_an_error_has_the_tags_too(backend: Backend, folder: Path):
    page = folder / "shop.py"
    raising = 'raise RuntimeError(f"no card for order {order}")'
    assert raising in page.read_text()
    logging = '__import__("logging").getLogger("bank").error("no answer")'
    page.write_text(page.read_text().replace(raising, logging))
    jobs, (event,) = run(folder, backend, "shop", 7)
    assert (event["logger"], [event["tags"]["job"]], event["tags"]["lease"]) == ("bank", jobs, "1")


def test_with_middleware_the_exception_is_told_once_with_its_stack(backend: Backend, folder: Path):
    jobs, (event,) = run(folder, backend, "shop_with_stacks", 7)
    assert event["tags"] == {"job": jobs[0], "task": "charge", "attempt": "1", "queue": "default"}
    (raised,) = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("RuntimeError", "no card for order 7")
    last = raised["stacktrace"]["frames"][-1]
    assert (last["function"], last["vars"]["order"]) == ("charge", "7")
