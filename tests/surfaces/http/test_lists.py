"""Groups, budgets, leases and executions over HTTP, a page at a time; and what is done about them."""

from __future__ import annotations

import httpx2

from leasehold import Leasehold
from leasehold.domain.budgets import Spend
from leasehold.domain.outcome import Detached, Success
from leasehold.domain.policy import Policy
from tests.contract.lives import end, run, run_external
from tests.surfaces.serving import Server

ADOPT = Policy(on_lost="adopt")


def test_groups_are_listed_a_page_at_a_time_by_state(app: Leasehold, admin: httpx2.Client):
    for name in ("a", "b/c", "d"):
        app.enqueue("add", {"a": 1}, group=name)
    app.group("b/c").stop(hold=True, reason="enough", actor="ann")
    first = admin.get("/v1/groups", params={"limit": 2})
    assert [group["name"] for group in first.json()["groups"]] == ["a", "b/c"]
    held = first.json()["groups"][1]
    assert (held["state"], held["held"], held["live"], held["total"]) == ("held", True, 0, 1)
    assert (held["reason"], held["last_stop"]["actor"]) == ("enough", "ann")
    link = first.headers["link"].removeprefix("<").partition(">")[0]
    rest = admin.get(link).json()
    assert ([group["name"] for group in rest["groups"]], rest["next"]) == (["d"], None)
    assert [g["name"] for g in admin.get("/v1/groups?state=held").json()["groups"]] == ["b/c"]
    assert admin.get("/v1/groups?state=asleep").status_code == 422
    wrong = admin.get("/v1/groups?cursor=nonsense")
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/cursor")


def test_a_job_that_is_over_its_budget_is_topped_up_and_resumed(app: Leasehold, admin: httpx2.Client):
    store = app.__internals__.store
    grant = run(store, task="add", policy=Policy(budget={"tokens": 10}, on_breach="pause"), group="g")
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 15)])
    app.group("g").budget(tokens=100)
    of_group, of_job = admin.get("/v1/budgets").json()["budgets"]
    assert (of_group["scope"], of_group["name"], of_group["left"]) == ("group", "g", 85)
    assert (of_job["name"], of_job["exhausted"], of_job["on_breach"]) == (grant.id, True, "pause")
    assert [row["name"] for row in admin.get("/v1/budgets?scope=job").json()["budgets"]] == [grant.id]
    lines = admin.get(f"/v1/jobs/{grant.id}/budget").json()
    assert [(line["scope"], line["left"], line["exhausted"]) for line in lines] == [
        ("job", 0, True),
        ("group", 85, False),
    ]
    path = f"/v1/jobs/{grant.id}/budget/top-up"
    raised = admin.post(path, json={"amounts": {"tokens": 50}}).json()
    assert (raised[0]["limit"], raised[0]["left"]) == (60, 45)
    assert app.get(grant.id).history()[-1].actor == "http:token 0"
    unknown = admin.post(path, json={"amounts": {"pages": 1}})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid-input")
    end(store, grant, Success("1"))
    assert admin.post(path, json={"amounts": {"tokens": 1}}).json()["code"] == "invalid-state"
    assert admin.post(path, json={"amounts": {}}).status_code == 422
    assert admin.post(path, json={"amounts": {"tokens": -1}}).status_code == 422


def test_a_group_gets_limits_and_loses_them(admin: httpx2.Client):
    made = admin.put("/v1/groups/task%2F42/budget", json={"limits": {"tokens": 5, "pages": 7}}).json()
    assert [(line["unit"], line["limit"]) for line in made] == [("pages", 7), ("tokens", 5)]
    admin.put("/v1/groups/task/42/budget", json={"limits": {"pages": None}})
    lines = admin.get("/v1/groups/task/42/budget").json()
    assert [(line["unit"], line["limit"]) for line in lines] == [("pages", None), ("tokens", 5)]
    assert admin.get("/v1/groups/task/42").json()["name"] == "task/42"


def test_leases_tell_who_holds_what(app: Leasehold, admin: httpx2.Client):
    store = app.__internals__.store
    one = run(store, "host:1", task="add", group="g")
    two = run(store, "host:2", task="add")
    first = admin.get("/v1/leases", params={"limit": 1}).json()
    (lease,) = first["leases"]
    assert (lease["job_id"], lease["worker"], lease["group"], lease["attempt"]) == (one.id, "host:1", "g", 1)
    assert 0 < lease["expires_in"] <= 30
    rest = admin.get("/v1/leases", params={"cursor": first["next"]}).json()
    assert ([row["job_id"] for row in rest["leases"]], rest["next"]) == ([two.id], None)
    assert [row["job_id"] for row in admin.get("/v1/leases?worker=host:2").json()["leases"]] == [two.id]


def test_an_orphan_is_listed_and_given_up_by_an_admin_alone(
    app: Leasehold, server: Server, admin: httpx2.Client
):
    store = app.__internals__.store
    grant = run_external(store, "host:1", task="add", policy=ADOPT)
    (watched,) = admin.get("/v1/executions").json()
    assert (watched["job_id"], watched["worker"], watched["site"]) == (grant.id, "host:1", "machine-1")
    refused = admin.post(f"/v1/jobs/{grant.id}/abandon")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid-state"), "it is watched"
    end(store, grant, Detached("drained"))
    assert admin.get("/v1/executions").json()[0]["worker"] is None
    operator = server.client("operate", "read")
    assert operator.post(f"/v1/jobs/{grant.id}/abandon").json()["code"] == "scope-missing"
    done = admin.post(f"/v1/jobs/{grant.id}/abandon", json={"reason": "burnt down"})
    assert done.json()["state"] == "queued"
    entry = app.get(grant.id).history()[-1]
    assert (entry.event, entry.actor) == ("abandoned", "http:token 0")
    assert admin.get("/v1/executions").json() == []


def test_a_token_of_some_queues_sees_what_is_in_them(app: Leasehold, server: Server):
    store = app.__internals__.store
    mine = run_external(store, "host:1", task="add", policy=ADOPT, queue="agents")
    others = run_external(store, "host:1", task="add", policy=ADOPT, queue="default")
    for grant in (mine, others):
        store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 1)])
    app.group("g").budget(tokens=1)
    client = server.client(token=server.token("admin", queues=["agent*"]))
    assert [row["job_id"] for row in client.get("/v1/leases").json()["leases"]] == [mine.id]
    assert [row["job_id"] for row in client.get("/v1/executions").json()] == [mine.id]
    assert [row["name"] for row in client.get("/v1/budgets").json()["budgets"]] == [mine.id]
    assert client.get(f"/v1/jobs/{mine.id}/budget").status_code == 200
    assert client.get(f"/v1/jobs/{others.id}/budget").json()["code"] == "job-not-found"
    for method, path in (
        ("GET", "/v1/groups"),
        ("GET", "/v1/groups/g/budget"),
        ("PUT", "/v1/groups/g/budget"),
    ):
        answer = client.request(method, path, json={"limits": {"tokens": 5}} if method == "PUT" else None)
        assert answer.json()["code"] == "queue-limited", path
    assert client.post(f"/v1/jobs/{others.id}/budget/top-up", json={"amounts": {"x": 1}}).status_code == 404
    assert client.post(f"/v1/jobs/{others.id}/abandon").status_code == 404


def test_a_parameter_with_one_value_is_given_once(admin: httpx2.Client):
    answer = admin.get("/v1/groups/g?since=[]&since=3")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/since")
    assert admin.get("/v1/groups/g?tasks=a&tasks=b&since=3").status_code == 200
    assert admin.get("/v1/jobs?state=queued&state=failed").status_code == 200
