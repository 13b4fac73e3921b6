"""Schedules from the command line."""

from __future__ import annotations

from tests.surfaces.cli.conftest import MODULE


def test_a_schedule_is_made_shown_steered_and_deleted(sqlite_cli):
    app = {"LEASEHOLD_APP": f"{MODULE}:app"}
    made = sqlite_cli("schedules", "set", "s", "add", '{"a": 1}', "--every", "1h", "--json", **app)
    assert (made.json["task"], made.json["every"], made.json["source"]) == ("add", 3600.0, "set")
    (listed,) = sqlite_cli("schedules", "--json", **app).lines
    assert (listed["name"], listed["args"], listed["orphaned"]) == ("s", {"a": 1}, False)
    shown = sqlite_cli("schedules", **app).out
    assert "every 1h" in shown
    assert "on" in shown
    ticks = sqlite_cli("schedules", "next", "s", "--count", "3", "--json", **app).json
    assert len(ticks) == 3
    assert ticks == sorted(ticks)
    paused = sqlite_cli("schedules", "pause", "s", "--reason", "deploy", "--actor", "ann", "--json", **app)
    assert (paused.json["paused"], paused.json["paused_by"]) == (True, "ann")
    assert "paused  by ann: deploy" in sqlite_cli("schedules", **app).out
    assert "is on; next" in sqlite_cli("schedules", "resume", "s", **app).out
    job = sqlite_cli("schedules", "run", "s", "--json", **app).json["id"]
    assert sqlite_cli("jobs", "show", job, "--json", **app).json["args"] == {"a": 1}
    assert sqlite_cli("schedules", "delete", "s", **app).code == 0
    assert sqlite_cli("schedules", "delete", "s", **app).code == 3


def test_what_is_wrong_is_named(sqlite_cli):
    app = {"LEASEHOLD_APP": f"{MODULE}:app"}
    assert sqlite_cli("schedules", "set", "s", "add", "--every", "1h").code == 2
    for words, field in (
        (["set", "s", "add", '{"a": "x"}', "--every", "1h"], "a"),
        (["set", "s", "add", "[1]", "--every", "1h"], "args"),
        (["set", "s", "add", '{"a": 1}'], "every"),
        (["set", "s", "add", '{"a": 1}', "--cron", "x"], "cron"),
        (["set", "s", "nope", "--every", "1h"], "task"),
    ):
        answer = sqlite_cli("schedules", *words, "--json", **app)
        assert (answer.code, answer.json["error"]["field"]) == (2, field)
