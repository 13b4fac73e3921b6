"""`jobs`, `show`, `why`: lists, one job, and JSON that parses."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from leasehold import SyncContext
from leasehold.domain.outcome import Failure
from leasehold.stores.results import Ending
from leasehold.surfaces.cli import render


def fail(app, job, error: str = "boom") -> None:
    grant = app.__internals__.store.claim_by_id(job.id, "host:1:aa")
    assert app.__internals__.store.settle(
        [Ending(grant.id, grant.token, Failure(error, final=True))]
    ).accepted


def test_jobs_are_listed_newest_first_page_by_page(app, here):
    made = [app.enqueue("work", {"n": n}).id for n in range(3)]
    first = here("jobs", "--json", "--limit", "2")
    assert [job["id"] for job in first.lines] == made[:0:-1]
    rest = here("jobs", "--json", "--cursor", first.lines[-1]["id"])
    assert [job["id"] for job in rest.lines] == made[:1]


def test_jobs_are_filtered_by_every_option(app, here):
    wanted = app.enqueue("in_lane", {"lane": "t1"}, queue="q1", group="g1", tags=("x",))
    app.enqueue("work")
    for option, value in (
        ("--queue", "q1"), ("--task", "in_lane"), ("--lane", "t1"), ("--group", "g1"), ("--tag", "x"),
    ):  # fmt: skip
        assert [job["id"] for job in here("jobs", option, value, "--json").lines] == [wanted.id], option
    fail(app, wanted)
    both = here("jobs", "--state", "failed", "--state", "queued", "--json").lines
    assert {job["state"] for job in both} == {"failed", "queued"}
    assert here("jobs", "--state", "nonsense").code == 2


def test_jobs_are_found_by_a_text_and_by_the_time_of_their_creation(app, here, monkeypatch):
    made = [app.enqueue("in_lane", {"lane": f"ACME {n}"}).id for n in range(3)]
    app.enqueue("in_lane", {"lane": "other"})
    notes = []
    monkeypatch.setattr(render, "note", notes.append)
    found = here("jobs", "--text", "acme", "--since", "2h", "--limit", "2", "--json").lines
    assert [job["id"] for job in found] == made[:0:-1]
    here("jobs", "--text", "acme", "--limit", "2")
    assert notes == [f"searched 3 jobs; to continue: --cursor {made[1]}"]
    rest = here("jobs", "--text", "acme", "--cursor", made[1], "--json").lines
    assert [job["id"] for job in rest] == made[:1]
    tomorrow = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - as people give it
    for option, value, number in (
        ("--since", "2h", 4), ("--until", "2h", 0), ("--since", "2020-01-01", 4), ("--until", "2020-01-01", 0),
        ("--since", tomorrow.isoformat(), 0), ("--until", tomorrow.isoformat(), 4),
        ("--until", f"{tomorrow.date()}T08:00-12:00", 4), ("--since", "7200", 4),
    ):  # fmt: skip
        assert len(here("jobs", option, value, "--json").lines) == number, (option, value)
    for wrong in ("soon", "-2h", "2020-13-01", ""):
        answer = here("jobs", "--since", wrong)
        assert (answer.code, "since" in answer.err) == (2, True), wrong


def test_failures_are_a_line_for_all_that_say_the_same(app, here, monkeypatch):
    for number in range(3):
        fail(app, app.enqueue("work"), f"timeout after {number} s")
    last = app.enqueue("in_lane", {"lane": "t1"}, queue="q1")
    fail(app, last, "KeyError: 'x'")
    head, first, second = here("jobs", "failures").out.splitlines()
    assert head.split() == ["jobs", "task", "last", "id", "error"]
    assert (first.split()[:2], first.endswith("timeout after <number> s")) == (["3", "work"], True)
    assert last.id in second
    rows = here("jobs", "failures", "--json").lines
    assert [(row["task"], row["count"], row["fingerprint"]) for row in rows] == [
        ("work", 3, "timeout after <number> s"),
        ("in_lane", 1, "KeyError: <text>"),
    ]
    assert [row["sample_id"] for row in here("jobs", "failures", "--queue", "q1", "--json").lines] == [
        last.id
    ]
    notes = []
    monkeypatch.setattr(render, "note", notes.append)
    here("jobs", "failures", "--limit", "2")
    assert notes == ["these are from the newest 2 failed jobs; --limit looks at more"]
    assert here("jobs", "failures", "--limit", "0").code == 2


def test_a_list_is_plain_columns_when_nobody_looks(app, here):
    job = app.enqueue("work")
    head, line = here("jobs").out.splitlines()
    assert head.split()[:3] == ["id", "state", "task"]
    assert line.split()[:3] == [job.id, "queued", "work"]


def test_show_tells_facts_arguments_error_and_history(app, here):
    job = app.enqueue("work", {"n": 7}, tags=("x",))
    fail(app, job, "boom\n\n  where")
    text = here("jobs", "show", job.id).out
    assert all(word in text for word in (job.id, "failed", '"n": 7', "boom", "where", "history"))
    found = here("jobs", "show", job.id, "--json").json
    assert (found["state"], found["args"], found["tags"]) == ("failed", {"n": 7}, ["x"])
    assert found["history"][-1]["event"] == "failed"


def test_show_lists_attempts_and_steps(app, here):
    job = app.enqueue("work", {"n": 7})
    store = app.__internals__.store
    grant = store.claim_by_id(job.id, "host:1:aa")
    assert store.save_steps(grant.id, grant.token, {f"read {n}": f'"page {n}"' for n in range(60)})
    store.settle([Ending(grant.id, grant.token, Failure("boom\n\n  where", final=True))])
    text = here("jobs", "show", job.id).out
    assert "\nattempts\n" in text
    assert "\nsteps\n" in text
    assert "host:1:aa" in text
    assert '"page 59"' in text
    assert "read 10 " not in text
    found = here("jobs", "show", job.id, "--json").json
    (one,) = found["attempts"]
    assert (one["attempt"], one["outcome"], one["worker"], one["error"]) == (
        1,
        "failed",
        "host:1:aa",
        "boom\n\n  where",
    )
    assert len(found["steps"]) == 60
    assert {"name": "read 0", "attempt": 1, "result": "page 0"}.items() <= found["steps"][0].items()


def test_show_cuts_what_is_long_and_json_does_not(app, here):
    @app.task
    def read(text: str) -> None: ...

    job = app.enqueue("read", {"text": "x" * 9000})
    assert "more characters" in here("jobs", "show", job.id).out
    assert len(here("jobs", "show", job.id).out) < 4000
    assert here("jobs", "show", job.id, "--json").json["args"] == {"text": "x" * 9000}


def test_what_a_job_says_cannot_steer_the_terminal(app, here):
    job = app.enqueue("work")
    fail(app, job, "\x1b[2J[bold]gone[/bold]")
    for command in (["jobs", "show", job.id], ["jobs"], ["why", job.id]):
        out = here(*command).out
        assert "\x1b" not in out
        assert "[bold]gone[/bold]" in out


def test_why_gives_causes_and_remedies(app, here):
    job = app.enqueue("work", queue="lonely", delay="1h")
    answer = here("why", job.id)
    assert answer.code == 0
    assert "1. it is not due" in answer.out
    assert "2. no live worker" in answer.out
    holds = here("why", job.id, "--json").json
    assert [hold["cause"] for hold in holds] == ["not_due", "no_worker"]
    assert all(hold["detail"] and hold["remedy"] for hold in holds)


def test_a_reading_command_makes_no_database(here, tmp_path):
    assert here("jobs", "--url", f"sqlite:///{tmp_path}/typo.db").code == 6
    assert not (tmp_path / "typo.db").exists()


def test_show_prints_progress_and_the_log_of_the_last_attempt(app, here):
    @app.task
    def notify(ctx: SyncContext) -> None:
        ctx.progress(3, 10, "page 3")
        ctx.log("first \x1b[2J line")
        ctx.log("x" * 9000)
        ctx.log("last line")

    job = app.enqueue("notify")
    asyncio.run(app.worker(burst=True, retention=None).run())
    text = here("jobs", "show", job.id).out
    assert "3 of 10: page 3, " in text
    assert "log of attempt 1" in text
    assert "last line" in text
    assert "first" not in text, "the end of a long log is shown"
    assert f"more characters before this; see leasehold jobs logs {job.id}" in text
    found = here("jobs", "show", job.id, "--json").json
    assert (found["progress"]["done"], found["progress"]["note"]) == (3, "page 3")
    (log,) = found["logs"]
    assert (log["attempt"], log["cut"]) == (1, 0)
    assert "first" in log["text"]
    assert "\x1b" not in here("jobs", "show", job.id).out
    whole = here("jobs", "logs", job.id[:18]).out
    assert "first \N{REPLACEMENT CHARACTER}[2J line\n" in whole, "all of it, and it cannot steer the terminal"
    assert whole.endswith(" last line\n")
    assert here("jobs", "logs", job.id, "--json").json == found["logs"]
    assert here("jobs", "logs", job.id, "--attempt", "2").out == ""


def test_show_lists_relatives_and_why_names_those_it_waits_for(app, here):
    parent = app.enqueue("work", {"n": 1})
    child = app.enqueue("work", {"n": 2}, after=[parent])
    listed = here("jobs", "show", child.id).out.partition("relatives\n")[2].splitlines()
    assert listed[1].split() == ["waits", "for", parent.id, "work", "queued"]
    (above,) = here("jobs", "show", child.id, "--json").json["relatives"]
    assert (above["relation"], above["id"], above["state"]) == ("waits_for", parent.id, "queued")
    (below,) = here("jobs", "show", parent.id, "--json").json["relatives"]
    assert (below["relation"], below["id"], below["met"]) == ("awaited_by", child.id, False)
    causes = {hold["cause"]: hold for hold in here("why", child.id, "--json").json}
    assert f"it waits for job {parent.id} (work, queued)" in causes["parent"]["detail"]


def test_show_cuts_long_relations_and_counts_the_rest(app, here):
    parents = [app.enqueue("work", {"n": n}) for n in range(30)]
    child = app.enqueue("work", after=parents)
    listed = here("jobs", "show", child.id).out.partition("relatives\n")[2].splitlines()
    assert [line.startswith("waits for") for line in listed[1:21]] == [True] * 20
    assert listed[21] == "… and 10 more: waits for"
    assert "more" not in here("jobs", "show", parents[0].id).out
    assert len(here("jobs", "show", child.id, "--json").json["relatives"]) == 30


def test_a_missing_file_says_how_to_name_the_store(here):
    answer = here("jobs", "--url", "sqlite:///typo.db")
    assert answer.code == 6
    assert "there is no file typo.db" in answer.err
    assert "--url" in answer.err
    assert "LEASEHOLD_APP" in answer.err
    assert "leasehold db upgrade" in answer.err


def test_what_is_wrong_in_the_users_module_is_told_with_file_and_line(here, tmp_path):
    for name, text, reported in (
        (
            "bad_task",
            "from leasehold import Leasehold\napp = Leasehold()\n\n@app.task\ndef k(**kw): ...\n",
            ":4: ",
        ),
        ("bad_import", "import no_such_thing\n", ":1: "),
        ("bad_syntax", "x = 1\ndef\n", ":2: "),
        ("bad_value", "def f():\n    raise KeyError('gone')\n\nf()\n", ":2: KeyError"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        answer = here("worker", name)
        assert answer.code == 2
        assert f"{name}.py{reported}" in answer.err, answer.err
        assert len(answer.err.splitlines()) == 1
