"""Groups, queues, kinds, lanes, limits, schedules, questions, workers and probes over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
from fastapi import FastAPI

from leasehold import Leasehold
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import WorkerCard, WorkerProblem
from leasehold.http import create_app
from leasehold.operations import audit
from leasehold.stores.results import Ending
from tests.backends import Backend
from tests.surfaces.http.test_jobs import settle
from tests.surfaces.serving import PATIENCE, Server
from tests.workers import wait_for


def test_a_group_is_followed_and_stopped(app: Leasehold, admin: httpx2.Client):
    jobs = [app.enqueue("add", {"a": n}, group="task/42") for n in range(3)]
    settle(app, Success("7"))
    status = admin.get("/v1/groups/task%2F42").json()
    assert (status["total"], status["succeeded"], status["live"]) == (3, 1, 2)
    assert status["results"] == [{"id": jobs[0].id, "task": "add", "result": 7, "result_ref": None}]
    assert status["counts"] == {"add": {"queued": 2, "succeeded": 1}}
    again = admin.get("/v1/groups/task/42", params={"since": status["version"], "wait": 0.1}).json()
    assert again["changed"] is False
    dry = admin.post("/v1/groups/task/42/stop", json={"dry_run": True}).json()
    assert dry["cancelled_counts"] == {"add": {"queued": 2}}
    stopped = admin.post(
        "/v1/groups/task/42/stop", json={"mode": "immediate", "hold": True, "reason": "done"}
    ).json()
    assert (stopped["cancelled_counts"], stopped["held"]) == ({"add": {"queued": 2}}, True)
    reported = admin.get("/v1/groups/task/42").json()
    assert (reported["state"], reported["last_stop"]["actor"], reported["live"]) == (
        "held",
        "http:token 0",
        0,
    )
    refused = admin.post("/v1/jobs", json={"task": "add", "args": {"a": 1}, "group": "task/42"})
    assert (refused.status_code, refused.json()["code"]) == (409, "group-on-hold")
    assert admin.post("/v1/groups/task/42/release").json() == {"changed": True}
    assert admin.get("/v1/groups/nobody").json()["version"] == 0


def test_stops_that_wait_hold_up_nobody(app: Leasehold, server: Server):
    """Far more of them than there are threads to wait in."""
    app.enqueue("add", {"a": 1}, group="g")
    store, operations = app.__internals__.store, app.__internals__.operations
    (grant,) = store.claim("w", ["default"], 1)
    client, many = server.client("admin"), 50
    with ThreadPoolExecutor(many) as threads:
        requested = [
            threads.submit(client.post, "/v1/groups/g/stop", json={"mode": "full", "wait": 60})
            for _ in range(many)
        ]
        try:
            wait_for(
                lambda: len(operations.call(audit.list_audit, verb="stop", limit=many).entries) == many,
                seconds=40,
            )
            assert not any(one.done() for one in requested)
            assert server.client().get("/livez").status_code == 200
        finally:
            store.settle([Ending(grant.id, grant.token, Success("3"))])
        assert {tuple(one.result(PATIENCE).json()["still_running"]) for one in requested} == {()}


def test_a_stop_needs_a_scope(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1}, tags=("x",), group="g")
    assert admin.post("/v1/stop", json={}).status_code == 422
    assert admin.post("/v1/stop", json={"tags": ["x"], "hold": True}).json()["code"] == "invalid-input"
    dry = admin.post("/v1/stop", json={"group": "g", "tasks": ["add"], "dry_run": True}).json()
    assert dry["cancelled_counts"] == {"add": {"queued": 1}}
    assert admin.post("/v1/stop", json={"tags": ["x"], "mode": "immediate"}).json()["cancelled_counts"]
    assert app.get(job.id).state == "cancelled"


def test_queues_and_kinds_are_paused_and_resumed(app: Leasehold, admin: httpx2.Client):
    app.enqueue("add", {"a": 1})
    paused = admin.post("/v1/queues/default/pause", json={"for": "1h", "reason": "deploy"}).json()
    assert (paused["name"], paused["reason"], paused["paused_by"]) == ("default", "deploy", "http:token 0")
    (row,) = (row for row in admin.get("/v1/queues").json() if row["counts"])
    assert (row["task"], row["counts"], row["queue_pause"]["reason"]) == ("add", {"queued": 1}, "deploy")
    assert app.__internals__.store.claim("w", ["default"], 1) == []
    assert [(one["scope"], one["name"]) for one in admin.get("/v1/pauses").json()] == [("queue", "default")]
    assert admin.post("/v1/queues/default/resume").json() == {"changed": True}
    assert admin.post("/v1/queues/default/resume").json() == {"changed": False}
    assert admin.post("/v1/tasks/add/pause").json()["until"] is None
    assert admin.post("/v1/tasks/add/resume").json() == {"changed": True}
    task = next(one for one in admin.get("/v1/tasks").json() if one["name"] == "add")
    assert task["description"] == "Adds two numbers."
    assert task["arguments"]["required"] == ["a"]
    assert (
        admin.post(
            "/v1/queues/default/pause", json={"for": "1h", "until": "2100-01-01T00:00:00Z"}
        ).status_code
        == 422
    )


def test_a_halted_lane_is_seen_and_resumed(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("greet", {"name": "a/b"})
    settle(app, Failure("broken", final=True))
    (lane,) = admin.get("/v1/lanes").json()
    assert (lane["lane"], lane["job_id"], lane["state"]) == ("a/b", job.id, "failed")
    assert admin.post("/v1/lanes/a%2Fb/resume").json()["state"] == "queued"
    assert admin.post("/v1/lanes/nothing/resume").json() is None


def test_limits_are_set_by_an_admin_and_closed_by_an_operator(server: Server, admin: httpx2.Client):
    operator = server.client("operate", "read")
    assert operator.put("/v1/slots/browser", json={"limit": 4}).status_code == 403
    assert admin.put("/v1/slots/browser", json={"limit": 4}).status_code == 204
    assert admin.put("/v1/rates/open%2Fai", json={"limit": "60/min", "burst": 2}).status_code == 204
    assert admin.put("/v1/rates/openai", json={"limit": "often"}).status_code == 422
    (slot,) = operator.get("/v1/slots").json()
    assert (slot["name"], slot["limit"], slot["used"]) == ("browser", 4, 0)
    assert operator.post("/v1/rates/open/ai/close", json={"for": "2m", "reason": "429"}).status_code == 204
    (rate,) = operator.get("/v1/rates").json()
    assert (rate["key"], rate["closed"], rate["closed_reason"]) == ("open/ai", True, "429")
    assert operator.post("/v1/rates/open/ai/open").json() == {"changed": True}


def test_a_schedule_is_seen_paused_resumed_and_run(app: Leasehold, admin: httpx2.Client):
    app.schedules.set("nightly", "add", {"a": 1}, every="24h")
    (row,) = admin.get("/v1/schedules").json()
    assert (row["name"], row["task"], row["args"], row["paused"]) == ("nightly", "add", {"a": 1}, False)
    assert admin.post("/v1/schedules/nightly/pause", json={"reason": "deploy"}).json()["paused"] is True
    assert admin.post("/v1/schedules/nightly/resume").json() == {"changed": True}
    made = admin.post("/v1/schedules/nightly/run")
    assert made.status_code == 201
    assert app.get(made.json()["id"]).task == "add"
    missing = admin.get("/v1/schedules/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "schedule-not-found")


def test_a_question_is_listed_and_answered(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("greet", {"name": "x"})
    settle(app, QuestionAsked("go", "May I?", schema='{"type": "boolean"}'))
    (requested,) = admin.get("/v1/questions?task=greet").json()
    assert (requested["job_id"], requested["key"], requested["schema"]) == (job.id, "go", {"type": "boolean"})
    wrong = admin.post(f"/v1/jobs/{job.id}/questions/go/answer", json={"value": "yes"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-answer")
    assert (
        admin.post(f"/v1/jobs/{job.id}/questions/go/answer", json={"value": True}).json()["state"] == "queued"
    )
    (closed,) = admin.get(f"/v1/jobs/{job.id}/questions").json()
    assert (closed["status"], closed["answer"]) == ("answered", True)
    assert admin.get("/v1/questions").json() == []


def test_workers_are_listed(app: Leasehold, admin: httpx2.Client):
    app.__internals__.store.report_worker(WorkerCard("w1", ("default",), ("add",), concurrency=3))
    (worker,) = admin.get("/v1/workers").json()
    assert (worker["name"], worker["queues"], worker["concurrency"]) == ("w1", ["default"], 3)


def test_a_workers_problems_are_listed_with_it(app: Leasehold, admin: httpx2.Client):
    problem = WorkerProblem("beta", "its database is damaged")
    app.__internals__.store.report_worker(
        WorkerCard("w1", ("default",), ("add",), tenants=("all",), problems=(problem,))
    )
    (worker,) = admin.get("/v1/workers").json()
    assert worker["problems"] == [{"tenant": "beta", "text": "its database is damaged"}]


def test_it_is_ready_only_while_the_database_can_be_used(app: Leasehold, backend: Backend, server: Server):
    client = server.client()
    assert client.get("/readyz").json() == {"status": "ok", "checks": {"database": "ok", "schema": "ok"}}
    operations = app.__internals__.operations
    before = operations._find_store
    away = Leasehold("postgresql://127.0.0.1:1/nothing?connect_timeout=1")
    operations._find_store = lambda: away.__internals__.store
    try:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "bad", "checks": {"database": "bad"}})
        assert "127.0.0.1:1" not in answer.text
        gone = server.client(token="lh_any").get("/v1/jobs")
        assert (gone.status_code, gone.json()["code"]) == (503, "database-unavailable")
        assert "127.0.0.1:1" not in gone.text
        assert client.get("/livez").status_code == 200
    finally:
        operations._find_store = before
        away.close()


def test_with_a_worker_of_its_own_it_is_ready_only_while_one_lives(app, listen: Callable[[FastAPI], Server]):
    client = listen(create_app(app, needs_worker=True)).client()
    assert client.get("/readyz").status_code == 503
    app.__internals__.store.report_worker(WorkerCard("w1", ("default",), ("add",)))
    assert client.get("/readyz").json()["checks"]["workers"] == "ok"
