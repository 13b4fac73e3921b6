"""Queues, tasks, workers, prune and the schema from the command line."""

from __future__ import annotations

import sqlite3

import pytest

from leasehold.domain.records import WorkerCard
from leasehold.stores.database.statements import read_migrations


def row(answer, queue: str) -> dict:
    return next(line for line in answer.lines if (line["queue"], line["task"]) == (queue, "work"))


@pytest.mark.parametrize(("scope", "name"), [("queues", "q1"), ("tasks", "work")])
def test_a_queue_or_a_task_is_paused_and_resumed(app, here, scope: str, name: str):
    app.enqueue("work", queue="q1")
    assert here(scope, "pause", name, "--for", "1h", "--reason", "deploy", "--actor", "ann@desk").code == 0
    found = row(here("queues", "--json"), "q1")
    pause = found["queue_pause"] or found["task_pause"]
    assert (pause["name"], pause["paused_by"], pause["reason"]) == (name, "ann@desk", "deploy")
    assert pause["until"] > pause["paused_at"]
    assert "deploy" in here("queues").out
    assert app.__internals__.store.claim("host:1:aa", ["q1"], 1) == []
    assert here(scope, "resume", name, "--json").json["changed"] is True
    assert here(scope, "resume", name, "--json").json["changed"] is False
    assert len(app.__internals__.store.claim("host:1:aa", ["q1"], 1)) == 1


def test_queues_show_counts_by_state_and_live_workers(app, here):
    for _ in range(3):
        app.enqueue("work", queue="q1")
    app.enqueue("in_lane", {"lane": "t1"}, queue="q1")
    app.__internals__.store.claim("host:1:aa", ["q1"], 1)
    app.__internals__.store.report_worker(WorkerCard("host:1:aa", ("q1",), ("work",)))
    rows = {r["task"]: r for r in here("queues", "--json").lines if r["queue"] == "q1"}
    counts = [sum(r["counts"].get(state, 0) for r in rows.values()) for state in ("queued", "running")]
    assert counts == [3, 1]
    assert (rows["work"]["workers"], rows["in_lane"]["workers"]) == (1, 0)
    assert [card["name"] for card in here("workers", "--json").lines] == ["host:1:aa"]
    assert "host:1:aa" in here("workers").out


def test_prune_deletes_what_is_at_rest_and_says_how_many(app, here):
    app.enqueue("work").cancel()
    live = app.enqueue("work")
    assert here("db", "prune").out == "0 jobs deleted\n"
    reported = here("db", "prune", "--older-than", "0s", "--dry-run")
    assert reported.out.splitlines()[0] == "1 job would be deleted"
    assert reported.out.splitlines()[2].split() == ["work", "cancelled", "1"]
    gone = {
        "jobs": 1,
        "groups": 0,
        "counts": [{"task": "work", "state": "cancelled", "jobs": 1}],
        "dry_run": False,
    }
    assert here("db", "prune", "--older-than", "0s", "--json").json == gone
    assert live.refresh().state == "queued"


def test_db_upgrade_makes_the_schema_and_says_what_it_applied(here, postgres_url, postgres_schema, tmp_path):
    every = list(read_migrations("leasehold.stores.sqlite"))
    for store in (
        ["--url", f"sqlite:///{tmp_path}/new.db"],
        ["--url", postgres_url, "--schema", postgres_schema],
    ):
        assert here("db", "upgrade", *store, "--json").json["applied"] == every
        assert here("db", "upgrade", *store, "--json").json["applied"] == []
        assert here("db", "verify", *store, "--json").json["missing"] == []


def test_db_sql_is_a_script_that_makes_the_same_schema(here, postgres_url, postgres_schema, tmp_path):
    import psycopg

    to = ["--url", postgres_url, "--schema", postgres_schema]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(here("db", "sql", *to).out.encode())
    assert here("db", "verify", *to).code == 0
    assert here("db", "upgrade", *to, "--json").json["applied"] == []

    file = tmp_path / "by-hand.db"
    made = ["--url", f"sqlite:///{file}"]
    sqlite3.connect(file).close()
    file.touch()
    script = here("db", "sql", *made).out
    connection = sqlite3.connect(file)
    connection.executescript(script)
    connection.close()
    assert here("db", "verify", *made).code == 0
    assert here("db", "upgrade", *made, "--json").json["applied"] == []


def test_db_verify_names_what_is_missing(here, app, backend):
    index = "leasehold_tag_job" if backend.name == "sqlite" else "tag_job"
    backend.query("DROP INDEX leasehold.tag_job")
    try:
        answer = here("db", "verify", "--json")
        assert answer.code == 1
        assert answer.json["missing"] == [f"index {index}"]
    finally:
        backend.query(f"CREATE INDEX {index} ON leasehold.tag (job_id)")
