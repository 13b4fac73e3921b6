"""The recipe "add a verb": one function in the table, and it is on HTTP, in bulk and in the audit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from leasehold import Leasehold
from leasehold.domain.bulk import ARGUMENTS, MEANT_FOR, BulkRequest
from leasehold.domain.job import Job
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.http import create_app
from leasehold.operations.arguments import Actor, JobId, Reason
from leasehold.operations.verb import VERBS, Backend, Verb, verb


@pytest.fixture
def nudge() -> Iterator[Verb[..., Job]]:
    @verb(
        "job.nudge",
        scope="operate",
        guard="job",
        http="POST /v1/jobs/{id}/nudge",
        bulk=(State.QUEUED,),
        examples={"reason": "slow"},
    )
    def nudge(backend: Backend, job_id: JobId, *, reason: Reason = None, actor: Actor = None) -> Job:
        """Nudge it."""
        return backend.store.pause(job_id, actor, reason)

    yield nudge
    VERBS.remove(nudge)
    del MEANT_FOR["nudge"]
    del ARGUMENTS["nudge"]


def test_a_verb_in_the_table_is_everywhere(app: Leasehold, nudge: Verb[..., Job]):
    first, second = app.enqueue("add", {"a": 1}), app.enqueue("add", {"a": 2})
    with TestClient(create_app(app, tokens=False), base_url="http://localhost") as client:
        paths: dict[str, Any] = client.get("/openapi.json").json()["paths"]
        route = paths["/v1/jobs/{id}/nudge"]["post"]
        assert (route["summary"], route["description"]) == ("Nudge Job", "Nudge it.")
        response = client.post(f"/v1/jobs/{first.id}/nudge", json={"reason": "slow"})
        assert (response.status_code, response.json()["state"]) == (200, "paused")
        assert client.post(f"/v1/jobs/{first.id}/nudge", json={"reson": "slow"}).status_code == 422
        many = client.post("/v1/jobs/bulk", json={"verb": "nudge", "task": "add", "dry_run": False})
        assert (many.status_code, many.json()["changed"]) == (200, 1)
    assert second.refresh().state is State.PAUSED
    found = [(row.verb, row.target, row.actor, row.detail) for row in app.audit().entries]
    assert found == [
        ("job.nudge", second.id, "http:local", {}),
        ("job.nudge", first.id, "http:local", {"reason": "slow"}),
    ]
    third = app.enqueue("add", {"a": 3})
    request = BulkRequest(verb="nudge", filter=Filter(task="add"), own={"reason": "mine"})
    assert app.__internals__.operations.bulk(request).changed == 1
    assert third.refresh().reason == "mine"


def test_without_the_verb_there_is_no_route(app: Leasehold):
    with TestClient(create_app(app, tokens=False), base_url="http://localhost") as client:
        assert client.post("/v1/jobs/bulk", json={"verb": "nudge", "task": "add"}).status_code == 422
        assert "/v1/jobs/{id}/nudge" not in client.get("/openapi.json").json()["paths"]
