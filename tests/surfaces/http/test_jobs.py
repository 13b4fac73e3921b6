"""/v1/jobs: what is made, seen and steered over HTTP is what the Python API makes, sees and steers."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from leasehold import Leasehold
from leasehold.domain.outcome import Failure, Success
from leasehold.stores.results import Ending
from tests.surfaces.serving import Server


def settle(app: Leasehold, *outcomes) -> None:
    store = app.__internals__.store
    grants = store.claim("w", ["default", "agents"], len(outcomes))
    store.settle([Ending(g.id, g.token, outcome) for g, outcome in zip(grants, outcomes, strict=True)])


def test_a_job_is_made_as_the_task_and_the_call_say(app: Leasehold, admin: httpx2.Client):
    at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    body = {"task": "add", "args": {"a": 1, "b": 2}, "at": at.isoformat(), "priority": 7, "group": "g"}
    answer = admin.post("/v1/jobs", json={**body, "tags": ["x", "y"], "unique": "k"})
    assert answer.status_code == 201
    made = answer.json()
    assert made["created"] is True
    assert answer.headers["location"] == f"/v1/jobs/{made['id']}"
    row = app.get(made["id"]).__row__
    assert (row.task, json.loads(row.args), row.priority) == ("add", {"a": 1, "b": 2}, 7)
    assert (row.available_at, row.group, row.tags, row.unique_key) == (at, "g", ("x", "y"), "k")
    again = admin.post("/v1/jobs", json={"task": "add", "args": {"a": 5}, "unique": "k"})
    assert (again.status_code, again.json()) == (200, {"id": made["id"], "created": False})


@pytest.mark.parametrize(
    "option",
    [
        {"queue": "other"},
        {"retry": {}},
        {"timeout": 1},
        {"slots": {}},
        {"lease": 1},
        {"tenant": "x"},
        {"hold": True},
    ],
)
def test_what_would_lift_a_limit_cannot_be_asked_for(
    app: Leasehold, admin: httpx2.Client, option: dict[str, object]
):
    answer = admin.post("/v1/jobs", json={"task": "add", "args": {"a": 1}, **option})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert answer.json()["errors"][0]["pointer"] == f"/body/{next(iter(option))}"
    assert app.jobs().jobs == []


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"task": "nothing"}, "unknown-task", "/task"),
        ({"task": "add", "args": {"a": "x"}}, "invalid-arguments", "/body/args/a"),
        ({"task": "add", "args": {}}, "invalid-arguments", "/body/args/a"),
        ({"task": "greet", "args": {"name": "a\0b"}}, "not-serializable", None),
        ({"task": "add", "args": {"a": 1}, "delay": "soon"}, "invalid-input", "/delay"),
        ({"task": "add", "args": {"a": 1}, "priority": 101}, "invalid-request", "/body/priority"),
        ({"task": "add", "args": {"a": 1}, "priority": "1"}, "invalid-request", "/body/priority"),
        ({"task": "add", "args": {"a": 1}, "delay": False}, "invalid-request", None),
        ({"task": "add", "args": {"a": 1}, "at": 0}, "invalid-request", "/body/at"),
        ({"task": "add", "args": {"a": 1}, "at": "2026-01-01T00:00:00"}, "invalid-request", "/body/at"),
    ],
)
def test_a_wrong_call_is_a_problem_that_names_the_field(app, admin: httpx2.Client, body, code, pointer):
    answer = admin.post("/v1/jobs", json=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, code)
    assert problem["type"] == f"urn:leasehold:problem:{code}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert pointer in (None, problem["errors"][0]["pointer"])
    assert app.jobs().jobs == []


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b"1" * 5000, b"null", b"[]", b"NaN", b""])
def test_a_body_that_is_no_request_is_a_problem(admin: httpx2.Client, content: bytes):
    answer = admin.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_batch_is_stored_whole_or_not_at_all(app: Leasehold, admin: httpx2.Client):
    good = {"task": "add", "args": {"a": 1}}
    answer = admin.post(
        "/v1/jobs/batch", json={"jobs": [good, {"task": "greet", "args": {"name": "x"}}, good]}
    )
    assert answer.status_code == 201
    ids = [one["id"] for one in answer.json()["jobs"]]
    assert [app.get(job).task for job in ids] == ["add", "greet", "add"]
    assert admin.post("/v1/jobs/batch", json={"jobs": [good, {"task": "add", "args": {}}]}).status_code == 422
    assert admin.post("/v1/jobs/batch", json={"jobs": []}).status_code == 422
    assert admin.post("/v1/jobs/batch", json={"jobs": [good] * 1001}).status_code == 422
    assert len(app.jobs().jobs) == 3


def test_a_list_goes_on_where_the_page_before_ended(app: Leasehold, admin: httpx2.Client):
    made = [app.enqueue("add", {"a": n}).id for n in range(5)]
    seen: list[str] = []
    url = "/v1/jobs?limit=2&state=queued&state=running"
    while url:
        answer = admin.get(url)
        seen += [job["id"] for job in answer.json()["jobs"]]
        link = answer.headers.get("link", "")
        assert bool(link) == (answer.json()["next"] is not None)
        url = link.partition(">")[0].removeprefix("<")
    assert seen == made[::-1]
    assert admin.get("/v1/jobs?state=failed").json()["jobs"] == []
    assert admin.get("/v1/jobs?task=greet").json()["jobs"] == []
    for wrong in ("limit=0", "limit=501", "state=lost", "cursor=x", "task=" + "x" * 201, "task=%00"):
        assert admin.get(f"/v1/jobs?{wrong}").status_code == 422, wrong


def test_sensitive_arguments_are_hidden_and_payloads_are_not_logged(
    app: Leasehold, admin: httpx2.Client, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    body = {"task": "greet", "args": {"name": "payload-in-clear", "key": "s3cret-value"}}
    made = admin.post("/v1/jobs", json=body).json()["id"]
    wrong = admin.post("/v1/jobs", json={**body, "args": {**body["args"], "nothing": "s3cret-value"}})
    assert wrong.status_code == 422
    assert "s3cret-value" not in wrong.text
    misplaced = admin.post("/v1/jobs", json={**body, "args": "s3cret-value", "key": "s3cret-value"})
    assert (misplaced.status_code, misplaced.json()["code"]) == (422, "invalid-request")
    assert "s3cret-value" not in misplaced.text
    reported = admin.get(f"/v1/jobs/{made}").json()
    assert reported["args"] == {"name": "payload-in-clear", "key": "[hidden]"}
    ours = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith(("leasehold", "uvicorn", "fastapi"))
    ]
    assert not any("s3cret" in text or "payload-in-clear" in text for text in ours)


def test_every_verb_moves_the_job_and_says_who_did_it(app: Leasehold, server: Server):
    client = server.client("operate", "read")
    job = app.enqueue("greet", {"name": "x"})

    def post(verb: str, **body: object) -> httpx2.Response:
        return client.post(f"/v1/jobs/{job.id}/{verb}", json=body)

    assert post("pause", reason="wait").json()["state"] == "paused"
    assert post("resume").json()["state"] == "queued"
    settle(app, Failure("broken", final=True))
    assert client.get(f"/v1/jobs/{job.id}").json()["error"] == "broken"
    assert post("skip").json()["state"] == "failed"
    assert post("resume", args={"name": "y"}, fresh=True).json()["args"]["name"] == "y"
    assert post("cancel", reason="enough").json()["state"] == "cancelled"
    refused = post("pause")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid-state")
    assert refused.json()["facts"] == {"job_id": job.id, "verb": "pause", "state": "cancelled", "why": ""}
    retried = post("retry")
    assert retried.status_code == 201
    assert retried.json()["retry_of"] == job.id
    actors = {(one["event"], one["actor"]) for one in client.get(f"/v1/jobs/{job.id}/history").json()}
    assert ("cancelled", "http:token 0") in actors
    held = app.__internals__.named_task("add", {"hold": True}).enqueue(a=1)
    assert client.post(f"/v1/jobs/{held.id}/release").json()["state"] == "queued"


def test_a_snooze_needs_a_time_with_a_zone(app: Leasehold, server: Server):
    client, job = server.client("operate", "read"), app.enqueue("greet", {"name": "x"})
    wrong: list[dict[str, object]] = [
        {},
        {"until": "2100-01-01T09:00:00"},
        {"until": 4102477200},
        {"until": "1960-01-01T00:00:00Z"},
    ]
    for body in wrong:
        assert client.post(f"/v1/jobs/{job.id}/snooze", json=body).status_code == 422, body
    assert client.get(f"/v1/jobs/{job.id}/history").json() == []
    given = {"until": "2100-01-01T09:00:00Z", "reason": "closed"}
    snoozed = client.post(f"/v1/jobs/{job.id}/snooze", json=given).json()
    assert (snoozed["state"], snoozed["available_at"]) == ("queued", "2100-01-01T09:00:00Z")
    (entry,) = client.get(f"/v1/jobs/{job.id}/history").json()
    assert (entry["event"], entry["actor"]) == ("snoozed", "http:token 0")
    assert entry["detail"] == "until 2100-01-01T09:00:00+00:00: closed"
    job.cancel()
    refused = client.post(f"/v1/jobs/{job.id}/snooze", json=given)
    assert (refused.status_code, refused.json()["facts"]["state"]) == (409, "cancelled")


def test_what_is_known_of_a_job_is_told(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    assert admin.get(f"/v1/jobs/{job.id}/explain").json()[0]["cause"] == "no_worker"
    assert admin.get(f"/v1/jobs/{job.id}/updates").json() == {"state": "queued", "attempt": 0, "updates": []}
    settle(app, Success("3"))
    (attempt,) = admin.get(f"/v1/jobs/{job.id}/attempts").json()
    assert (attempt["attempt"], attempt["outcome"], attempt["worker"]) == (1, "succeeded", "w")
    assert admin.get(f"/v1/jobs/{job.id}/log").json() == {"attempt": 0, "text": "", "cut": 0}
    assert admin.get(f"/v1/jobs/{job.id}/result").json() == {"id": job.id, "state": "succeeded", "result": 3}


def test_an_unknown_job_is_not_found_whatever_its_id_looks_like(admin: httpx2.Client):
    for job_id in ("nothing", "019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10", "%00", "%F0%9F%92%A9", "a" * 5000):
        for path in (
            "",
            "/updates",
            "/log",
            "/history",
            "/attempts",
            "/explain",
            "/result",
            "/watch",
            "/questions",
        ):
            answer = admin.get(f"/v1/jobs/{job_id}{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "job-not-found"), (job_id, path)


def test_a_result_is_a_problem_when_there_will_be_none(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("fail")
    waiting = admin.get(f"/v1/jobs/{job.id}/result")
    assert (waiting.status_code, waiting.json()) == (202, {"id": job.id, "state": "queued"})
    settle(app, Failure("broken", final=True))
    ended = admin.get(f"/v1/jobs/{job.id}/result")
    assert (ended.status_code, ended.json()["code"]) == (409, "job-not-succeeded")
    assert "broken" in ended.json()["detail"]
