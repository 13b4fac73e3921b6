"""What commands print cannot steer a terminal, survives any encoding, and with --json is always one JSON value."""

from __future__ import annotations

import json

import pytest

from leasehold.surfaces.cli.render import safe_json
from tests.surfaces.cli.conftest import MODULE, Cli
from tests.surfaces.cli.test_jobs import fail

EVIL = "\x1b[2J\x9b31m\x07 \u202egnissap\u202c ok"
STEERING = ("\x1b", "\x9b", "\x07", "\u202e", "\u202c")


def is_clean(text: str) -> bool:
    return not any(sign in text for sign in STEERING)


def test_error_lines_cannot_steer_the_terminal(app, here):
    app.enqueue("work", group="g")
    app.group("g").stop(hold=True, reason=EVIL, actor=EVIL)
    held = app.jobs().jobs[0]
    answer = here("jobs", "retry", held.id)
    assert answer.code == 4
    assert "ok" in answer.err
    assert is_clean(answer.err)
    assert is_clean(here("groups", "release", EVIL).err)
    assert is_clean(here("lanes", "resume", EVIL).err)
    assert is_clean(here("jobs", EVIL).err)


def test_the_error_of_a_job_that_was_waited_for_is_clean_too(sqlite_cli: Cli):
    text = json.dumps({"text": EVIL})
    answer = sqlite_cli("jobs", "run-now", MODULE, "fail", text, "--max-running", "1", "--wait", "30")
    assert answer.code == 1
    assert "ok" in answer.err
    assert is_clean(answer.err)


@pytest.mark.parametrize("form", [[], ["--log-json"]], ids=["text", "json"])
def test_the_log_of_a_worker_cannot_steer_the_terminal(sqlite_cli: Cli, form: list[str]):
    assert sqlite_cli("jobs", "enqueue", MODULE, "fail", json.dumps({"text": EVIL})).code == 0
    answer = sqlite_cli("worker", MODULE, "--burst", *form)
    assert answer.code == 0
    assert "gnissap" in answer.err
    assert is_clean(answer.err)


def test_json_escapes_what_could_steer_a_terminal_and_says_the_same(app, here):
    job = app.enqueue("work")
    fail(app, job, EVIL)
    for command in (["jobs", "show", job.id], ["jobs"], ["why", job.id]):
        out = here(*command, "--json").out
        assert is_clean(out)
        assert "ok" in out
    assert here("jobs", "show", job.id, "--json").json["error"] == EVIL
    assert json.loads(safe_json(json.dumps("é\x9b\U000e0001", ensure_ascii=False))) == "é\x9b\U000e0001"


@pytest.mark.parametrize("command", ["jobs", "lanes", "questions", "limits slots", "limits rates", "workers"])
def test_an_empty_list_is_an_empty_array(app, here, command):
    assert (here(*command.split(), "--json").json, here(*command.split(), "--json").code) == ([], 0)


def test_a_bulk_verb_prints_one_array_and_one_job_one_object(app, here):
    assert here("jobs", "cancel", "--queue", "default", "--yes", "--json").json == []
    one, two, three = (app.enqueue("work") for _ in range(3))
    assert here("jobs", "pause", one.id, "--json").json["state"] == "paused"
    both = here("jobs", "pause", two.id, three.id, "--json").json
    assert {reported["id"] for reported in both} == {two.id, three.id}
    assert len(here("jobs", "cancel", "--state", "paused", "--yes", "--json").json) == 3


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_without_unicode_is_no_reason_to_fail(sqlite_cli: Cli, encoding: str):
    text = "snowman ☃ and a long line " + "x" * 100
    made = sqlite_cli("jobs", "enqueue", MODULE, "fail", json.dumps({"text": text}))
    assert sqlite_cli("worker", MODULE, "--burst", PYTHONIOENCODING=encoding).code == 0
    for command in (
        ["jobs"],
        ["jobs", "show", made.out.strip()],
        ["why", made.out.strip()],
        ["jobs", "--help"],
    ):
        answer = sqlite_cli(*command, PYTHONIOENCODING=encoding)
        assert (answer.code, answer.err) == (0, ""), command
    shown = sqlite_cli("jobs", "show", made.out.strip(), "--json", PYTHONIOENCODING=encoding)
    assert "snowman ☃" in shown.json["error"]
