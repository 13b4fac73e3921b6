"""POST /v1/jobs/bulk: nothing is done unless that is said."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2

from leasehold import Leasehold
from tests.surfaces.serving import Server


def test_many_jobs_are_counted_first_and_then_changed(app: Leasehold, admin: httpx2.Client):
    jobs = [app.enqueue("add", {"a": n}, group="g") for n in range(3)]
    requested = {"verb": "cancel", "group": "g", "limit": 2, "reason": "enough"}
    dry = admin.post("/v1/jobs/bulk", json=requested).json()
    assert (dry["dry_run"], dry["matched"], dry["changed"]) == (True, 2, 0)
    assert dry["sample"] == [jobs[2].id, jobs[1].id]
    assert app.count()["queued"] == 3
    done = admin.post("/v1/jobs/bulk", json={**requested, "dry_run": False}).json()
    assert (done["matched"], done["changed"], done["refused"]) == (2, 2, [])
    rest = admin.post("/v1/jobs/bulk", json={**requested, "dry_run": False, "cursor": done["next"]}).json()
    assert (rest["changed"], rest["next"]) == (1, None)
    assert {job.refresh().state.value for job in jobs} == {"cancelled"}
    assert (jobs[0].reason, jobs[0].history()[-1].actor) == ("enough", "http:token 0")


def test_many_jobs_are_snoozed(app: Leasehold, admin: httpx2.Client):
    jobs = [app.enqueue("add", {"a": n}, group="g") for n in range(2)]
    requested = {"verb": "snooze", "group": "g", "dry_run": False}
    missing = admin.post("/v1/jobs/bulk", json=requested)
    assert (missing.status_code, missing.json()["errors"][0]["pointer"]) == (422, "/until")
    done = admin.post("/v1/jobs/bulk", json={**requested, "until": "2100-01-01T12:00:00+02:00"}).json()
    assert (done["verb"], done["matched"], done["changed"]) == ("snooze", 2, 2)
    assert {job.refresh().available_at for job in jobs} == {datetime(2100, 1, 1, 10, tzinfo=UTC)}


def test_new_arguments_are_for_one_job(app: Leasehold, admin: httpx2.Client):
    jobs = [app.enqueue("add", {"a": 1}, group="g"), app.enqueue("greet", {"name": "x"}, group="g")]
    for job in jobs:
        job.pause()
    requested = {"verb": "resume", "group": "g", "dry_run": False, "args": {"name": "y"}}
    refused = admin.post("/v1/jobs/bulk", json=requested)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/body/args")
    assert {job.refresh().state.value for job in jobs} == {"paused"}


def test_refusals_have_the_codes_of_problems(app: Leasehold, admin: httpx2.Client):
    jobs = [app.enqueue("add", {"a": n}, group="g") for n in range(2)]
    for job in jobs:
        job.pause()
    app.__internals__.store.stop_group("g", True)
    requested = {"verb": "resume", "task": "add", "state": ["paused"], "dry_run": False}
    (refusal,) = admin.post("/v1/jobs/bulk", json=requested).json()["refused"]
    assert (refusal["code"], refusal["state"], refusal["jobs"]) == ("group-on-hold", None, 2)
    requested = {"verb": "pause", "state": ["paused"], "dry_run": False}
    (refusal,) = admin.post("/v1/jobs/bulk", json=requested).json()["refused"]
    assert (refusal["code"], refusal["state"]) == ("invalid-state", "paused")


def test_an_empty_filter_and_unknown_verbs_are_refused(app: Leasehold, admin: httpx2.Client):
    app.enqueue("add", {"a": 1})
    empty = admin.post("/v1/jobs/bulk", json={"verb": "cancel", "dry_run": False})
    assert (empty.status_code, empty.json()["errors"][0]["pointer"]) == (422, "/filter")
    assert admin.post("/v1/jobs/bulk", json={"verb": "delete", "everything": True}).status_code == 422
    assert (
        admin.post("/v1/jobs/bulk", json={"verb": "retry", "task": "add", "reason": "x"}).status_code == 422
    )
    assert (
        admin.post("/v1/jobs/bulk", json={"verb": "cancel", "task": "add", "limit": 10_001}).status_code
        == 422
    )
    assert admin.get("/v1/jobs/bulk").status_code == 405
    assert admin.post("/v1/jobs/bulk", json={"verb": "cancel", "everything": True}).json()["matched"] == 1
    assert app.count()["queued"] == 1


def test_a_token_of_some_queues_steers_those_alone(app: Leasehold, server: Server):
    mine = app.enqueue("greet", {"name": "x"})
    others = app.enqueue("add", {"a": 1})
    client = server.client(token=server.token("operate", queues=["agent*"]))
    requested = {"verb": "cancel", "everything": True, "dry_run": False}
    assert client.post("/v1/jobs/bulk", json=requested).json()["code"] == "queue-limited"
    assert (
        client.post("/v1/jobs/bulk", json={**requested, "queue": "default"}).json()["code"] == "queue-limited"
    )
    assert client.post("/v1/jobs/bulk", json={**requested, "queue": "agents"}).json()["changed"] == 1
    assert (mine.refresh().state, others.refresh().state) == ("cancelled", "queued")
