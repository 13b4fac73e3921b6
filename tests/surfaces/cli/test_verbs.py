"""Commands that are made from the table of verbs."""

from __future__ import annotations

from datetime import timedelta

from leasehold.domain.stream import Note, RunNotes
from leasehold.operations.verb import VERBS
from leasehold.surfaces.cli.main import command
from leasehold.surfaces.cli.verbs import COMMAND_WORDS, place
from tests.surfaces.cli.test_help import commands
from tests.surfaces.cli.test_jobs import fail


def test_every_verb_with_an_http_line_has_a_command():
    known = {name for name, _ in commands(command())}
    assert len(VERBS) > 60
    assert [verb.name for verb in VERBS if verb.http and place(verb) not in known] == []
    assert set(COMMAND_WORDS) <= {verb.name for verb in VERBS}


def test_what_belongs_to_a_job_is_listed_by_itself(app, here):
    first = app.enqueue("work")
    second = app.enqueue("work", after=[first])
    fail(app, first)
    (attempt,) = here("jobs", "attempts", first.id, "--json").lines
    assert (attempt["attempt"], attempt["outcome"]) == (1, "failed")
    assert here("jobs", "attempts", first.id[:20]).out.splitlines()[1].split()[:2] == ["1", "failed"]
    assert [one["event"] for one in here("jobs", "history", first.id, "--json").lines] == ["failed"]
    assert "running → failed" in here("jobs", "history", first.id).out
    (relative,) = here("jobs", "relatives", second.id, "--json").lines
    assert (relative["relation"], relative["id"]) == ("waits_for", first.id)
    assert first.id in here("jobs", "relatives", second.id).out
    assert here("jobs", "progress", first.id, "--json").json is None
    assert here("jobs", "progress", first.id).out == "none\n"
    for word in ("steps", "questions", "budget", "spending"):
        assert here("jobs", word, first.id, "--json").lines == []
        assert here("jobs", word, first.id).code == 0
    assert here("jobs", "history", "f" * 32).code == 3


def test_the_updates_of_a_job_are_listed_after_a_number(app, here):
    job = app.enqueue("work")
    store = app.__internals__.store
    (grant,) = store.claim("host:1:aa", ["default"], 1)
    notes = tuple(Note(place, "word", f'"{word}"') for place, word in enumerate(("one", "two"), 1))
    store.write_updates([RunNotes(job.id, grant.token, 1, notes)])
    found = here("jobs", "updates", job.id, "--json").json
    assert [one["data"] for one in found["updates"]] == ["one", "two"]
    since = str(found["updates"][0]["seq"])
    assert here("jobs", "updates", job.id, "--since", since).out.split()[1:] == ["word", '"two"']


def test_the_budget_of_a_group_is_set_and_shown(app, here):
    app.enqueue("work", group="g")
    assert here("limits", "set-budget", "g", "tokens=50_000", "pages=3").code == 0
    shown = here("groups", "budget", "g", "--json").lines
    assert {one["unit"]: one["limit"] for one in shown} == {"tokens": 50_000, "pages": 3}
    assert here("limits", "set-budget", "g", "pages=null", "--json").lines[0]["limit"] is None
    assert here("groups", "budget", "g").out.split()[-5:] == ["g", "tokens", "0", "50,000", "50,000"]
    assert here("limits", "set-budget", "g", "tokens").code == 2


def test_a_queue_is_paused_until_a_time_and_the_pauses_are_listed(app, here):
    app.enqueue("work")
    assert here("queues", "pause", "default", "--until", "2099-01-02T03:04:05+00:00").code == 0
    (pause,) = here("queues", "pauses", "--json").lines
    assert (pause["name"], pause["until"]) == ("default", "2099-01-02T03:04:05Z")
    assert here("queues", "pauses").out.splitlines()[1].split()[:2] == ["queue", "default"]
    refused = here("queues", "pause", "default", "--until", "soon")
    assert (refused.code, "is not a time" in refused.err) == (2, True)


def test_a_schedule_is_shown_by_itself(app, here):
    app.schedules.set("nightly", "work", {"n": 1}, every="1h")
    found = here("schedules", "show", "nightly", "--json").json
    assert (found["args"], found["orphaned"]) == ({"n": 1}, False)
    assert "nightly" in here("schedules", "show", "nightly").out
    assert here("schedules", "show", "none").code == 3


def test_a_verb_for_many_jobs_has_its_own_options_alone(app, here):
    job = app.enqueue("work", hold=True)
    assert here("jobs", "release", job.id, "--reason", "x").code == 2
    assert here("jobs", "pause", job.id, "--fresh").code == 2
    job.pause()
    assert here("jobs", "resume", job.id, "--args", '{"n": 7}').code == 0
    assert here("jobs", "show", job.id, "--json").json["args"] == {"n": 7}
    assert here("jobs", "resume", job.id, "--args", "[1]").code == 2


def test_new_arguments_are_for_one_job(app, here):
    jobs = [app.enqueue("work").pause() for _ in range(2)]
    for which in (["--state", "paused", "--yes"], [job.id for job in jobs]):
        answer = here("jobs", "resume", *which, "--args", '{"n": 8}')
        assert (answer.code, "--args: works with one id only" in answer.err) == (2, True)
    assert {job.refresh().state for job in jobs} == {"paused"}


def test_jobs_are_snoozed_by_id_and_by_filter(app, here):
    one, two = app.enqueue("work"), app.enqueue("work", queue="q1")
    assert here("jobs", "snooze", one.id, "--until", "2099-01-02T03:04:05Z", "--reason", "closed").code == 0
    assert here("jobs", "show", one.id, "--json").json["available_at"] == "2099-01-02T03:04:05Z"
    assert here("jobs", "snooze", "--queue", "q1", "--until", "2099-01-02", "--yes").code == 0
    assert two.refresh().available_at.year >= 2098
    before = app.__internals__.operations.now()
    assert here("jobs", "snooze", one.id, "--until", "2h").code == 0
    assert timedelta(hours=2) <= one.refresh().available_at - before < timedelta(hours=3)
    missing = here("jobs", "snooze", one.id)
    assert (missing.code, missing.err.startswith("error: until: is missing")) == (2, True)
    assert here("jobs", "snooze", "--all", "--dry-run").code == 0
