"""/v1/audit."""

from __future__ import annotations

import httpx2

from leasehold import Leasehold
from tests.surfaces.serving import Server


def test_whoever_acts_over_http_stands_in_the_audit(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    app.rates.set("api", "1/s")
    app.schedules.set("nightly", "add", {"a": 1}, every="1h")
    requested = [
        ("job.cancel", job.id, lambda: admin.post(f"/v1/jobs/{job.id}/cancel", json={"reason": "enough"})),
        ("slot.set", "gpu", lambda: admin.put("/v1/slots/gpu", json={"limit": 2})),
        ("rate.set", "web", lambda: admin.put("/v1/rates/web", json={"limit": "1/s"})),
        ("rate.close", "api", lambda: admin.post("/v1/rates/api/close")),
        ("rate.open", "api", lambda: admin.post("/v1/rates/api/open")),
        ("queue.pause", "agents", lambda: admin.post("/v1/queues/agents/pause")),
        ("queue.resume", "agents", lambda: admin.post("/v1/queues/agents/resume")),
        ("task.pause", "add", lambda: admin.post("/v1/tasks/add/pause")),
        ("task.resume", "add", lambda: admin.post("/v1/tasks/add/resume")),
        ("schedule.pause", "nightly", lambda: admin.post("/v1/schedules/nightly/pause")),
        ("schedule.resume", "nightly", lambda: admin.post("/v1/schedules/nightly/resume")),
        ("schedule.run", "nightly", lambda: admin.post("/v1/schedules/nightly/run")),
        (
            "budget.set",
            "g",
            lambda: admin.put("/v1/groups/g/budget", json={"limits": {"tokens": 5}}),
        ),
        ("group.release", "g", lambda: admin.post("/v1/groups/g/release")),
    ]
    app.group("g").stop(hold=True)
    for _, _, ask in requested:
        assert ask().is_success
    page = admin.get("/v1/audit", params={"actor": "http:token 0"}).json()
    reported = [(entry["verb"], entry["target"], entry["outcome"]) for entry in page["entries"]]
    assert reported == [(verb, target, "done") for verb, target, _ in reversed(requested)]
    assert page["entries"][-1]["detail"] == {"reason": "enough"}
    assert page["next"] is None


def test_a_refusal_stands_in_the_audit(app: Leasehold, admin: httpx2.Client):
    job = app.enqueue("add", {"a": 1})
    for code in (200, 409):
        assert admin.post(f"/v1/jobs/{job.id}/cancel").status_code == code
    refused, done = admin.get("/v1/audit", params={"target": job.id}).json()["entries"]
    assert (refused["outcome"], refused["error"]) == ("refused", "InvalidState")
    assert (done["outcome"], done["error"]) == ("done", None)


def test_pages_follow_each_other(app: Leasehold, admin: httpx2.Client):
    for number in range(5):
        app.slots.set("gpu", number, actor="ann")
    first = admin.get("/v1/audit", params={"verb": "slot.set", "limit": 3})
    assert [entry["detail"]["limit"] for entry in first.json()["entries"]] == [4, 3, 2]
    link = first.headers["Link"].partition(">")[0].lstrip("<")
    second = admin.get(link).json()
    assert [entry["detail"]["limit"] for entry in second["entries"]] == [1, 0]
    assert second["next"] is None
    wrong = admin.get("/v1/audit", params={"cursor": "x"})
    assert wrong.status_code == 422
    assert "cursor" in wrong.text


def test_only_admins_read_it(server: Server):
    assert server.client("read", "operate").get("/v1/audit").status_code == 403
    limited = server.client(token=server.token("admin", queues=["agents"]))
    assert limited.get("/v1/audit").json()["code"] == "queue-limited"
