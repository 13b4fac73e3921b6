"""The operator's verbs from the command line: by id, and in bulk by filter."""

from __future__ import annotations

import pytest

from leasehold.domain.outcome import Failure
from leasehold.operations import bulk
from leasehold.operations.operations import Operations
from leasehold.stores.results import Ending
from leasehold.surfaces.cli import render
from tests.backends import new_id, new_job


def test_each_verb_works_by_id(app, here):
    held = app.enqueue("work", hold=True)
    assert here("jobs", "release", held.id).out.split() == [held.id, "queued"]
    assert here("jobs", "pause", held.id, "--reason", "lunch").out.split() == [held.id, "paused"]
    assert held.refresh().reason == "lunch"
    assert here("jobs", "resume", held.id).out.split() == [held.id, "queued"]
    other = app.enqueue("work")
    assert here("jobs", "interrupt", other.id, "--reason", "enough").out.split() == [other.id, "cancelled"]
    assert other.refresh().reason == "enough"
    assert here("jobs", "cancel", held.id).out.split() == [held.id, "cancelled"]
    reported = here("jobs", "show", held.id, "--json").json, here("jobs", "--json").lines[-1]
    assert reported[0]["updated_at"] == reported[1]["updated_at"] > reported[1]["created_at"]
    assert held.refresh().updated_at.isoformat()[:19] == reported[1]["updated_at"][:19]
    again = here("jobs", "retry", held.id, "--json").json
    assert app.get(again["id"]).__row__.retry_of == held.id


def test_resolve_lets_a_halted_lane_go_on(app, here):
    from tests.surfaces.cli.test_jobs import fail

    first, second = (app.enqueue("in_lane", {"lane": "t1"}) for _ in range(2))
    fail(app, first)
    assert here("lanes", "--json").lines[0]["job_id"] == first.id
    assert here("jobs", "skip", first.id).code == 0
    assert here("lanes", "--json").lines == []
    assert [g.id for g in app.__internals__.store.claim("host:1:aa", ["default"], 5)] == [second.id]


def test_lanes_resume_brings_the_halting_job_back(app, here):
    from tests.surfaces.cli.test_jobs import fail

    job = app.enqueue("in_lane", {"lane": "t1"})
    fail(app, job)
    assert here("lanes", "resume", "t1").out.split() == [job.id, "queued"]
    assert here("lanes", "resume", "t1").code == 4


def test_a_filter_needs_yes_when_nobody_can_be_asked(app, here):
    job = app.enqueue("work", queue="q1")
    answer = here("jobs", "cancel", "--queue", "q1")
    assert answer.code == 2
    assert "1 job" in answer.err
    assert job.refresh().state == "queued"


@pytest.mark.parametrize(("answered", "state"), [(True, "cancelled"), (False, "queued")])
def test_a_person_is_shown_the_count_and_asked(app, here, monkeypatch, answered, state):
    import typer

    requested = []
    monkeypatch.setattr(render, "on_terminal", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda text, **_: requested.append(text) or answered)
    job = app.enqueue("work", queue="q1")
    assert here("jobs", "cancel", "--queue", "q1").code == 0
    assert requested == ["cancel 1 job(s)?"]
    assert job.refresh().state == state


def test_bulk_work_goes_over_all_pages_and_sums_up(app, here, monkeypatch):
    monkeypatch.setattr(bulk, "PAGE_SIZE", 3)
    app.__internals__.store.enqueue([])
    for n in range(8):
        app.enqueue("work", {"n": n}, queue="q1")
    other = app.enqueue("work", queue="q2")
    answer = here("jobs", "cancel", "--queue", "q1", "--yes")
    assert answer.code == 0
    assert answer.out == "cancel: 8 done, 0 refused\n"
    assert other.refresh().state == "queued"


def test_refusals_are_counted_and_told_and_the_rest_is_done(app, here):
    one, two = app.enqueue("work"), app.enqueue("work")
    one.cancel()
    answer = here("jobs", "cancel", one.id, two.id)
    assert answer.code == 4
    assert "1 done, 1 refused" in answer.out
    assert "it was cancelled" in answer.err
    missing = here("jobs", "cancel", new_id(), "--json")
    assert missing.code == 3
    assert missing.json["error"]["type"] == "JobNotFound"


def test_a_retry_by_filter_leaves_what_succeeded_alone(app, here):
    from tests.surfaces.cli.test_jobs import fail

    failed, queued = app.enqueue("work", queue="q1"), app.enqueue("work", queue="q1")
    fail(app, failed)
    assert here("jobs", "retry", "--queue", "q1", "--yes", "--json").lines[0]["state"] == "queued"
    assert len(app.jobs(queue="q1").jobs) == 3
    assert queued.refresh().state == "queued"


def test_neither_ids_nor_filter_or_both_is_refused(app, here):
    job = app.enqueue("work")
    assert here("jobs", "cancel").code == 2
    assert here("jobs", "cancel", job.id, "--queue", "default").code == 2


def test_an_id_may_be_given_by_its_beginning(app, here):
    job = app.enqueue("work")
    assert here("why", job.id[:18]).code == 0
    assert here("jobs", "pause", job.id.replace("-", "")[:20].upper()).out.split() == [job.id, "paused"]
    near = new_id()[:9] + "0000-7000-8000-00000000000"
    app.__internals__.store.enqueue([new_job(id=near + digit) for digit in "01"])
    ambiguous = here("jobs", "cancel", near)
    assert ambiguous.code == 2
    assert f"{near}0, {near}1" in ambiguous.err
    assert here("jobs", "cancel", "ffffffff-ffff").code == 3
    assert here("jobs", "cancel", "nope").code == 3
    assert here("jobs", "cancel", job.id[:5]).code == 2, "too short to mean one"


def test_a_retry_by_filter_points_to_resume(app, here):
    from tests.surfaces.cli.test_jobs import fail

    job = app.enqueue("work", group="g 1")
    fail(app, job)
    answer = here("jobs", "retry", "--group", "g 1", "--state", "failed", "--yes")
    assert answer.code == 0
    assert "retry makes new jobs" in answer.err
    command = answer.err.strip().partition("leasehold ")[2]
    assert command == "jobs resume --group 'g 1' --state failed"
    assert here("jobs", "retry", "--group", "g 1", "--yes", "--json").err == ""
    assert here("jobs", "resume", "--group", "g 1", "--state", "failed", "--yes").code == 0
    assert job.refresh().state == "queued"


def test_jobs_that_have_moved_on_since_a_filter_found_them_are_no_errors(app, here, monkeypatch):
    one, two = app.enqueue("work"), app.enqueue("work")
    found, looks = Operations.list_jobs, []

    def look_then_lose(self, *requested):
        page = found(self, *requested)
        looks.append(page)
        if len(looks) == 2:  # the first one only counts
            one.cancel()
        return page

    monkeypatch.setattr(Operations, "list_jobs", look_then_lose)
    answer = here("jobs", "pause", "--queue", "default", "--yes")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "pause: 1 done, 0 refused, 1 had moved on\n"
    assert (one.refresh().state, two.refresh().state) == ("cancelled", "paused")


def test_a_dry_run_tells_how_many_and_which_and_changes_nothing(app, here):
    jobs = [app.enqueue("work", queue="q1") for _ in range(25)]
    reported = here("jobs", "cancel", "--queue", "q1", "--dry-run")
    assert reported.code == 0
    first, *ids, dots = reported.out.splitlines()
    assert (first, len(ids), dots.strip()) == ("would cancel 25 job(s)", 20, "…")
    assert jobs[-1].id.startswith(ids[0].strip())
    report = here("jobs", "cancel", "--queue", "q1", "--dry-run", "--json").json
    assert (report["matched"], report["changed"], report["dry_run"]) == (25, 0, True)
    assert app.count()["queued"] == 25
    assert here("jobs", "cancel", jobs[0].id, "--dry-run").code == 2


def test_a_group_on_hold_refuses_its_jobs_and_the_others_are_resumed(app, here):
    held, free = (app.enqueue("work", group=name) for name in ("held", "free"))
    for job in (held, free):
        job.pause()
    app.__internals__.store.stop_group("held", True)
    answer = here("jobs", "resume", "--state", "paused", "--yes")
    assert answer.code == 4
    assert answer.out == "resume: 1 done, 1 refused\n"
    assert "on hold" in answer.err
    assert (held.refresh().state, free.refresh().state) == ("paused", "queued")


def test_resume_fresh_forgets_what_was_stored(app, here):
    job = app.enqueue("work")
    grant = app.__internals__.store.claim_by_id(job.id, "worker")
    app.__internals__.store.save_steps(job.id, grant.token, {"a": "1"}, state="2")
    app.__internals__.store.settle([Ending(job.id, grant.token, Failure("no", final=True))])
    assert here("jobs", "cancel", job.id, "--fresh").code == 2
    assert app.__internals__.store.load_steps(job.id) == {"a": "1"}
    assert here("jobs", "resume", job.id, "--fresh").out.split() == [job.id, "queued"]
    assert app.__internals__.store.load_steps(job.id) == {}
    assert app.__internals__.store.load_checkpoint(job.id) is None
