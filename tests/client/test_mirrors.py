"""`app.mirrors`: a table of the user's own, kept in step, installed from Python."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold import Leasehold, State, Task
from leasehold.errors import InvalidInput, UnknownTask
from tests.backends import Backend
from tests.workers import burst

WORDS = {state: state.value.upper() for state in State}


@pytest.fixture
def table(backend: Backend, app: Leasehold) -> Iterator[str]:
    backend.query("CREATE TABLE leasehold.runs (run BIGINT PRIMARY KEY, status TEXT, done TEXT, note TEXT)")
    yield "leasehold_runs" if backend.name == "sqlite" else f"{backend.schema}.runs"
    for row in app.mirrors.list():
        app.mirrors.remove(row.mirror.task, row.mirror.table)
    backend.query("DROP TABLE leasehold.runs")


@pytest.fixture
def run_tool(app: Leasehold) -> Task[..., Any, Any, Any]:
    @app.task(mirror=True, sensitive=("secret",))
    def run_tool(run_id: int, secret: str = "") -> int:
        return run_id

    return run_tool


def rows(backend: Backend) -> list[tuple[Any, ...]]:
    return backend.query("SELECT run, status, done IS NULL FROM leasehold.runs ORDER BY run")


def settings(at: str, **changes: Any) -> Any:
    given = {"table": at, "key": "run", "argument": "run_id", "status": "status", "states": WORDS}
    return {**given, "columns": {"finished": "done"}, "insert": True, **changes}


def test_a_mirror_is_added_as_often_as_the_program_starts_listed_and_removed(backend, app, table, run_tool):
    app.mirrors.add(run_tool, **settings(table), actor="ann")
    asyncio.run(app.mirrors.aadd("run_tool", **settings(table)))
    (row,) = app.mirrors.list()
    assert (row.mirror.task, row.mirror.table, row.problems) == ("run_tool", table, ())
    run_tool.enqueue(1)
    assert rows(backend) == [(1, "QUEUED", True)]
    burst(app)
    assert rows(backend) == [(1, "SUCCEEDED", False)]
    app.mirrors.remove(run_tool, table)
    run_tool.enqueue(2)
    assert rows(backend) == [(1, "SUCCEEDED", False)], "the rows stay, and nothing is written any more"
    assert asyncio.run(app.mirrors.alist()) == []
    with pytest.raises(InvalidInput, match="'run_tool' has no mirror in"):
        app.mirrors.remove(run_tool, table)
    reported = [(entry.verb, entry.actor) for entry in app.audit(target="run_tool").entries]
    assert ("mirror.add", "ann") in reported
    assert "mirror.remove" in dict(reported)


def test_a_mirror_that_says_something_else_takes_the_place_of_the_one_before(backend, app, table, run_tool):
    app.mirrors.add(run_tool, **settings(table))
    app.mirrors.add(run_tool, **settings(table, states={**WORDS, State.QUEUED: "waiting"}))
    run_tool.enqueue(1)
    assert rows(backend) == [(1, "waiting", True)]
    assert [row.problems for row in app.mirrors.list()] == [()]


def test_without_an_argument_the_row_is_found_by_the_unique_key(backend, app, table):
    @app.task(mirror=True, unique="{number}")
    def keyed(number: int) -> None: ...

    app.mirrors.add(keyed, **settings(table, argument=None))
    keyed.enqueue(7)
    assert rows(backend) == [(7, "QUEUED", True)]


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"states": {"queued": "waiting"}}, "there is no word for"),
        ({"argument": "nothing"}, "has no 'nothing'"),
        ({"argument": "secret"}, "is sensitive"),
        ({"columns": {"finished": "gone"}}, "gone"),
        ({"table": "nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_mirrored_is_refused(app, table, run_tool, changes, reported):
    with pytest.raises(InvalidInput, match=reported):
        app.mirrors.add(run_tool, **settings(table, **changes))
    assert app.mirrors.list() == []


def test_a_task_that_is_not_known_or_says_no_mirror_is_refused(app, table):
    @app.task
    def plain(run_id: int) -> None: ...

    with pytest.raises(InvalidInput, match="does not say mirror=True"):
        app.mirrors.add(plain, **settings(table))
    with pytest.raises(UnknownTask):
        app.mirrors.add("elsewhere", **settings(table))
