"""`leasehold db mirror`: SQL that keeps a table of the user's in step, printed or run."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from leasehold.domain.states import State
from leasehold.operations import mirrors
from leasehold.surfaces.cli.problems import Exit

STATES = ",".join(f"{state.value}={state.value.upper()}" for state in State)


@pytest.fixture
def table(backend, app):
    name = "leasehold_runs" if backend.name == "sqlite" else f"{backend.schema}.runs"
    backend.query("CREATE TABLE leasehold.runs (run BIGINT PRIMARY KEY, status TEXT, done TEXT)")

    @app.task(mirror=True)
    def mirrored(run_id: int, more: int = 0) -> int:
        return run_id

    yield name
    for row in app.__internals__.operations.call(mirrors.list_mirrors):
        app.__internals__.operations.call(mirrors.remove_mirror, row.mirror.task, row.mirror)
    backend.query("DROP TABLE leasehold.runs")


def options(table: str, *more: str) -> list[str]:
    found = ["db", "mirror", "mirrored", "--table", table, "--key", "run", "--match", "argument:run_id"]
    return [*found, "--status", "status", "--states", STATES, "--finished", "done", "--insert", *more]


def test_it_is_made_listed_verified_and_dropped(backend, app, table, here):
    assert here(*options(table, "--apply")).code == Exit.OK
    (row,) = here("db", "mirrors", "--json").lines
    assert (row["mirror"]["task"], row["mirror"]["table"], row["problems"]) == ("mirrored", table, [])
    assert here("db", "mirrors").out.split()[-1] == "ok"
    assert here("db", "verify", "--json").json["mirrors"] == []
    mirrored = app.__internals__.named_task("mirrored", {})
    mirrored.enqueue_many({"run_id": n} for n in range(100))
    assert backend.query("SELECT count(*), min(status), max(status) FROM leasehold.runs") == [
        (100, "QUEUED", "QUEUED")
    ]
    backend.query("DELETE FROM leasehold.mirror")
    reported = here("db", "verify")
    assert (reported.code, "belongs to no mirror" in reported.out) == (Exit.JOB_FAILED, True)
    assert here(*options(table, "--apply")).code == Exit.OK
    assert here("db", "mirror", "mirrored", "--table", table, "--drop", "--apply").code == Exit.OK
    assert here("db", "mirrors", "--json").lines == []


def test_what_is_printed_can_be_run_by_somebody_else(backend, app, table, here):
    printed = here(*options(table))
    assert (printed.code, app.__internals__.operations.call(mirrors.list_mirrors)) == (Exit.OK, [])
    if backend.name == "sqlite":
        with closing(sqlite3.connect(backend.url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(printed.out)
    else:
        backend.query(printed.out)
    app.__internals__.named_task("mirrored", {}).enqueue(1)
    assert backend.query("SELECT run, status FROM leasehold.runs") == [(1, "QUEUED")]
    assert [row.problems for row in app.__internals__.operations.call(mirrors.list_mirrors)] == [()]


@pytest.mark.parametrize(
    ("option", "value", "reported"),
    [
        ("--states", STATES.replace("paused=PAUSED,", ""), "no word for paused"),
        ("--states", STATES + ",asleep=x", "asleep"),
        ("--match", "somewhere", "argument:NAME or unique_key"),
        ("--key", "a b", "not a usable name"),
        ("--times", "stone", "iso or unix"),
    ],
)
def test_what_cannot_be_mirrored_is_refused_with_the_remedy(app, table, here, option, value, reported):
    answer = here(*options(table, option, value))
    assert (answer.code, reported in answer.err) == (Exit.USAGE, True), answer.err


def test_the_tasks_own_words_are_checked_where_its_code_is_known(cli, backend):
    cli.folder.joinpath("cli_tasks.py").write_text(
        cli.folder.joinpath("cli_tasks.py").read_text()
        + "\nfrom typing import Annotated\nfrom pydantic import Field\n"
        "@app.task(mirror=True)\ndef mirrored(run_id: Annotated[int, Field(alias='runId')], more: int = 0): ...\n"
        "@app.task\ndef plain(run_id: int): ...\n"
    )
    environment = {"LEASEHOLD_APP": "cli_tasks", "LEASEHOLD_URL": ""}
    given = options("runs")

    def reported(*arguments: str) -> str:
        answer = cli(*arguments, **environment)
        return answer.out + answer.err

    cli.folder.joinpath("cli_tasks.py").write_text(
        cli.folder.joinpath("cli_tasks.py")
        .read_text()
        .replace("app = Leasehold(", f"app = Leasehold({backend.url!r}, ")
    )
    assert "runId" in reported(*given)
    assert "has a default" in reported(*given, "--match", "argument:more")
    assert "has no 'nothing'" in reported(*given, "--match", "argument:nothing")
    assert "mirror=True" in reported(*["plain" if one == "mirrored" else one for one in given])
    assert "says mirror=True, but has no mirror" in reported("db", "verify")
