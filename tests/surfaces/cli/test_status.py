"""`leasehold status` and `top`: the whole at a glance, from the reads that the lists use."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import WorkerCard, WorkerProblem
from tests.contract.lives import end
from tests.surfaces.cli.conftest import stop
from tests.surfaces.cli.test_jobs import fail


def a_worker(worker: str, *, draining: bool) -> WorkerCard:
    return WorkerCard(
        name=worker,
        queues=("default",),
        tasks=("work",),
        concurrency=20,
        running=1,
        version="1",
        draining=draining,
    )


def test_an_empty_store_says_so(app, here):
    found = here("status", "--json").json
    assert (found["jobs"], found["workers"], found["halted_lanes"], found["open_questions"]) == ({}, 0, [], 0)
    lines = here("status").out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith(("jobs", "halted", "open"))] == ["none"] * 3
    assert "start one with leasehold worker" in here("status").out


def test_jobs_workers_halted_lanes_and_questions_are_counted(app, here):
    store = app.__internals__.store
    fail(app, app.enqueue("in_lane", {"lane": "t1"}))
    app.enqueue("in_lane", {"lane": "t1"})
    for _ in range(2):
        app.enqueue("work")
    app.enqueue("work", priority=100)
    (grant,) = store.claim("host:1:aa", ["default"], 1)
    end(store, grant, QuestionAsked("login", "Who are you?"))
    app.queues.pause("default", reason="deploy", actor="ann")
    store.report_worker(a_worker("host:1:aa", draining=False))
    store.report_worker(a_worker("host:2:bb", draining=True))
    found = here("status", "--json").json
    assert found["jobs"] == {"queued": 3, "waiting": 1, "failed": 1}
    assert (found["workers"], found["running"], found["places"], found["draining"]) == (2, 2, 40, 1)
    assert [lane["lane"] for lane in found["halted_lanes"]] == ["t1"]
    assert found["open_questions"] == 1
    assert {row["task"] for row in found["queues"] if row["counts"]} == {"in_lane", "work"}
    text = here("status").out
    for part in ("3 queued", "2 live, 2 of 40 places taken, 1 draining", "t1", "deploy"):
        assert part in text


def test_workers_in_trouble_say_with_what(app, here):
    problems = (WorkerProblem("beta", "damaged"), WorkerProblem(None, "no claims"))
    app.__internals__.store.report_worker(
        replace(a_worker("w", draining=True), tenants=("all",), problems=problems)
    )
    assert "tenant beta: damaged" in " ".join(here("workers").out.split())
    (worker,) = here("workers", "--json").json
    assert worker["problems"] == [
        {"tenant": "beta", "text": "damaged"},
        {"tenant": None, "text": "no claims"},
    ]


def test_a_lane_that_runs_is_not_halted(app, here):
    app.enqueue("in_lane", {"lane": "t1"})
    assert app.__internals__.store.claim("host:1:aa", ["default"], 1)
    assert here("status", "--json").json["halted_lanes"] == []


def test_top_prints_what_has_changed_until_it_is_interrupted(sqlite_cli):
    assert sqlite_cli("db", "upgrade").code == 0
    shown = sqlite_cli.start("top", "--json")
    assert json.loads(shown.stdout.readline())["jobs"] == {}
    assert sqlite_cli("jobs", "enqueue", "cli_tasks", "add", '{"a": 1}').code == 0
    assert json.loads(shown.stdout.readline())["jobs"] == {"queued": 1}
    assert stop(shown, signal.SIGINT)[0] == 130
