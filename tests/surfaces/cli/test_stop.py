"""`stop` and `group` from the command line, and who stands in the history for what was typed."""

from __future__ import annotations

import getpass
import signal
import socket

from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from tests.surfaces.cli.conftest import stop
from tests.surfaces.cli.test_jobs import fail
from tests.workers import wait_for


def test_a_dry_run_tells_what_a_stop_would_do(app, here):
    job = app.enqueue("work", group="task-42")
    answer = here("jobs", "stop", "--group", "task-42", "--mode", "immediate", "--dry-run")
    assert answer.code == 0
    assert answer.out.splitlines() == ["task  was     would be cancelled", "work  queued  1"]
    assert job.refresh().state == "queued"


def test_a_stop_reports_as_json(app, here):
    one = app.enqueue("work", group="g", tags=("x",))
    other = app.enqueue("in_lane", {"lane": "l"}, group="g")
    report = here(
        "jobs", "stop", "--group", "g", "--task", "work", "--tag", "x", "--reason", "enough", "--json"
    ).json
    assert report["scope"] == {"group": "g", "tasks": ["work"], "tags": ["x"]}
    assert report["cancelled_counts"] == {"work": {"queued": 1}}
    assert report["still_running"] == []
    assert (one.refresh().state, one.reason, other.refresh().state) == ("cancelled", "enough", "queued")
    for scope in (["--lane", "l"], ["--queue", "default"], ["--task", "in_lane"]):
        assert here("jobs", "stop", *scope, "--dry-run", "--json").json["cancelled_counts"] == {
            "in_lane": {"queued": 1}
        }


def test_a_stop_that_is_not_over_in_time_exits_with_5(app, here):
    job = app.enqueue("work", group="g")
    grant = app.__internals__.store.claim_by_id(job.id, "worker-1")
    answer = here("jobs", "stop", "--group", "g", "--wait", "0s")
    assert answer.code == 5
    assert f"still running: {job.id}" in answer.out
    assert "1 to finish" in answer.out
    app.__internals__.store.settle([Ending(job.id, grant.token, Success("1"))])
    assert here("jobs", "stop", "--group", "g").code == 0


def test_a_stop_of_everything_has_to_be_meant(app, here):
    job = app.enqueue("work")
    assert here("jobs", "stop").code == 2
    assert here("jobs", "stop", "--mode", "sideways", "--group", "g").code == 2
    assert here("jobs", "stop", "--queue", "default", "--hold").code == 2
    refused = here("jobs", "stop", "--all")
    assert (refused.code, job.refresh().state) == (2, "queued")
    assert "--yes" in refused.err
    assert here("jobs", "stop", "--all", "--yes").code == 0
    assert job.refresh().state == "cancelled"


def test_a_stop_that_finds_nothing_says_so_off_a_terminal_too(app, here):
    answer = here("jobs", "stop", "--all", "--yes")
    assert (answer.code, answer.out, answer.err) == (0, "", "nothing to stop\n")
    assert here("jobs", "stop", "--all", "--yes", "--json").json["cancelled_counts"] == {}


def test_a_hold_refuses_with_4_until_it_is_released(app, here):
    job = app.enqueue("work", group="g")
    assert "on hold" in here("jobs", "stop", "--group", "g", "--hold", "--reason", "maintenance").out
    answer = here("jobs", "retry", job.id)
    assert answer.code == 4
    assert "maintenance" in answer.err
    assert here("groups", "release", "g").out == "group g is released\n"
    assert here("groups", "release", "g").code == 4
    assert here("jobs", "retry", job.id).code == 0


def test_a_group_is_shown_and_waited_for(app, here, cli):
    job = app.enqueue("work", group="g")
    shown = here("groups", "show", "g")
    assert shown.code == 0
    assert "0 of 1 (0%)" in shown.out
    assert "1 queued" in shown.out
    facts = here("groups", "show", "g", "--json").json
    assert (facts["version"], facts["live"], facts["counts"]) == (1, 1, {"work": {"queued": 1}})
    assert here("groups", "show", "g", "--wait", "20ms", "--since", "1").code == 5
    waiting = cli.start("groups", "show", "g", "--wait", "60s", "--since", "1", "--json")
    job.cancel()
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, err) == (0, "")
    assert '"live": 0' in out
    assert here("groups", "show", "nobody").code == 0


def test_who_did_it_stands_in_the_history(app, here):
    job = app.enqueue("work", group="g")
    here("jobs", "pause", job.id)
    here("jobs", "resume", job.id, "--actor", "ann")
    here("jobs", "stop", "--group", "g", "--actor", "bob", "--reason", "enough")
    me = f"{getpass.getuser()}@{socket.gethostname()}"
    assert [(h.event, h.actor, h.detail) for h in job.history()] == [
        ("paused", me, None),
        ("resumed", "ann", None),
        ("cancelled", "bob", "enough"),
    ]
    reported = wait_for(lambda: here("jobs", "show", job.id).out)
    assert "bob" in reported
    assert me in reported


def test_progress_is_all_of_it_only_when_all_have_succeeded(app, here):
    jobs = [app.enqueue("work", group="g") for _ in range(201)]
    store = app.__internals__.store
    grants = store.claim("worker-1", ["default"], 200)
    store.settle([Ending(grant.id, grant.token, Success("1")) for grant in grants])
    assert len(jobs) == 201
    assert "200 of 201 (99%)" in here("groups", "show", "g").out


def test_a_dry_run_says_what_would_become_of_those_that_run(app, here):
    job = app.enqueue("work", group="g")
    app.__internals__.store.claim_by_id(job.id, "worker-1")
    for mode, reported in (
        ("graceful", "would be waited for"),
        ("immediate", "would be stopped"),
        ("full", "would be stopped, and waited for"),
    ):
        out = here("jobs", "stop", "--group", "g", "--mode", mode, "--dry-run").out
        assert f"{reported}: {job.id}" in out
        assert "still running" not in out


def test_a_group_is_followed_until_nothing_of_it_is_live(app, cli):
    one, two = (app.enqueue("work", group="g") for _ in range(2))
    following = cli.start("groups", "show", "g", "--follow")
    assert following.stdout.readline() == "g: 0 of 2 succeeded, 2 to go\n"
    store = app.__internals__.store
    grant = store.claim_by_id(one.id, "worker-1")
    store.settle([Ending(grant.id, grant.token, Success("1"))])
    store.notify_watchers()
    assert following.stdout.readline() == "g: 1 of 2 succeeded, 1 to go\n"
    two.cancel()
    assert following.stdout.readline() == "g: 1 of 2 succeeded, 0 to go\n"
    assert following.wait(30) == 0
    fail(app, app.enqueue("work", group="g"))
    failed = cli("groups", "show", "g", "--follow", "--json")
    assert (failed.code, failed.json["live"]) == (1, 0)


def test_jobs_are_followed_until_ctrl_c(app, cli):
    job = app.enqueue("work")
    following = cli.start("jobs", "--follow")
    assert following.stdout.readline().split()[1:] == [job.id, "queued", "work"]
    job.pause("lunch")
    assert following.stdout.readline().split()[1:] == [job.id, "paused", "work", "lunch"]
    code, err = stop(following, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in err
