"""The support that users get for their own tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leasehold import Leasehold, Retry, State
from leasehold.testing import sandbox

app = Leasehold("sqlite:///this-file-must-not-appear.db")


@app.task
async def ship(order_id: int) -> str:
    return f"shipped {order_id}"


@app.task(queue="mail", retry=Retry(max_attempts=2, backoff=10))
def notify(order_id: int) -> None:
    raise ConnectionError("no mail today")


def test_a_drain_runs_what_is_due_and_the_clock_brings_the_rest(tmp_path):
    with sandbox(app, tmp_path) as box:
        job = ship.enqueue(1)
        later = ship.using(delay="10m").enqueue(2)
        box.assert_enqueued("ship", order_id=1)
        assert box.drain() == 1
        assert job.result(timeout=0) == "shipped 1"
        assert later.refresh().state is State.QUEUED
        box.clock.advance(600)
        assert box.drain() == 1
        assert later.result(timeout=0) == "shipped 2"


def test_a_retry_waits_for_its_backoff_on_the_tests_clock(tmp_path):
    with sandbox(app, tmp_path) as box:
        job = notify.enqueue(1)
        assert box.drain() == 1
        assert (job.refresh().state, job.attempt) == (State.QUEUED, 1)
        box.clock.advance(10)
        assert box.drain() == 1
        assert (job.refresh().state, job.attempt) == (State.FAILED, 2)
        assert job.error.startswith("ConnectionError: no mail today")


def test_what_was_not_enqueued_is_told_with_what_was(tmp_path):
    with sandbox(app, tmp_path) as box:
        ship.enqueue(1)
        with pytest.raises(AssertionError, match=r'ship \{"order_id": 1\} \(queued\)'):
            box.assert_enqueued("ship", order_id=2)
        with pytest.raises(AssertionError, match="expected 2"):
            box.assert_enqueued("ship", count=2)


def test_the_sandbox_leaves_the_apps_own_store_alone(tmp_path):
    with sandbox(app, tmp_path):
        ship.enqueue(1)
    assert app.url.endswith("this-file-must-not-appear.db")


USERS_TEST = """
from leasehold import Leasehold
app = Leasehold("sqlite:///never.db")

@app.task
def add(a: int, b: int) -> int:
    return a + b

def test_add(leasehold_sandbox):
    box = leasehold_sandbox(app)
    job = add.enqueue(2, 3)
    box.drain()
    assert job.result(timeout=0) == 5
"""


def test_the_pytest_plugin_works_in_a_users_project(tmp_path):
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in told.stdout, told.stdout + told.stderr
    assert not (tmp_path / "never.db").exists()
