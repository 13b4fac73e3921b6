"""`result`, and `show` of a job whose result is a file."""

from __future__ import annotations

import json

import pytest

from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from tests.backends import Backend


@pytest.fixture
def filed(app, backend: Backend, tmp_path, monkeypatch):
    """A job that has succeeded, with its result in a file."""
    monkeypatch.setenv("LEASEHOLD_RESULTS", str(tmp_path / "results"))
    job = app.enqueue("work", {"n": 7})
    store = backend.open(results=str(tmp_path / "results"))
    grant = store.claim_by_id(job.id, "host:1:aa")
    name = store.file_result(job.id, grant.token, '{"n": 7}')
    assert store.settle([Ending(job.id, grant.token, Success(None, name))]).accepted
    return job


def test_the_result_is_read_from_its_file(filed, here):
    assert here("jobs", "result", filed.id).json == {"n": 7}
    name = f"{filed.id}.1.json"
    assert here("jobs", "result", filed.id, "--json").json == {
        "id": filed.id,
        "result": {"n": 7},
        "result_ref": name,
    }
    found = here("jobs", "show", filed.id, "--json").json
    assert (found["result"], found["result_ref"]) == ({"n": 7}, name)
    assert name in here("jobs", "show", filed.id).out


def test_a_file_that_is_gone_hides_nothing_else(filed, here, tmp_path):
    for path in (tmp_path / "results").rglob("*.json"):
        path.unlink()
    gone = here("jobs", "result", filed.id)
    assert (gone.code, "is not there" in gone.err) == (3, True)
    shown = here("jobs", "show", filed.id)
    assert (shown.code, "is not there" in shown.out, '"n": 7' in shown.out) == (0, True, True)
    found = here("jobs", "show", filed.id, "--json").json
    assert (found["result"], "is not there" in found["result_missing"]) == (None, True)


def test_a_result_that_is_not_there_yet_is_an_exit_code(app, here):
    job = app.enqueue("work")
    assert here("jobs", "result", job.id).code == 5
    job.cancel()
    assert here("jobs", "result", job.id).code == 1
    assert json.loads(here("jobs", "result", job.id, "--json").out)["error"]["type"] == "JobNotSucceeded"
