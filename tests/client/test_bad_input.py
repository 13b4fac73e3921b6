"""Bad input gets one clear error that names the field and the remedy, the same on both stores; nothing is stored."""

from __future__ import annotations

import math

import pytest
from pydantic import BaseModel

from leasehold import Leasehold, State
from leasehold.errors import (
    DatabaseUnreachable,
    InvalidArguments,
    InvalidInput,
    JobNotFound,
    SchemaOutdated,
    UnknownTask,
    Unstorable,
)
from leasehold.stores.base.statements import read_migrations


class Point(BaseModel):
    x: float


@pytest.fixture
def tasks(app):
    @app.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task
    def note(text: str = "", value: float = 0.0, data: object = None, point: Point | None = None) -> None: ...

    return app


DEEP: object = 0
for _ in range(70):
    DEEP = [DEEP]

CASES = {
    "wrong argument type": (lambda app: app.enqueue("add", {"a": "x"}), InvalidArguments, "a"),
    "missing argument": (lambda app: app.enqueue("add", {}), InvalidArguments, "a"),
    "unknown argument": (lambda app: app.enqueue("add", {"a": 1, "c": 2}), InvalidArguments, "c"),
    "unknown task": (lambda app: app.enqueue("ad", {}), UnknownTask, "task"),
    "NaN": (lambda app: app.enqueue("note", {"value": math.nan}), Unstorable, "note.value"),
    "infinity, nested": (
        lambda app: app.enqueue("note", {"data": {"x": [1, math.inf]}}),
        Unstorable,
        "note.data.x[1]",
    ),
    "NaN in a model": (
        lambda app: app.enqueue("note", {"point": {"x": math.nan}}),
        Unstorable,
        "note.point.x",
    ),
    "NUL": (lambda app: app.enqueue("note", {"text": "a\0b"}), Unstorable, "note.text"),
    "NUL, nested": (lambda app: app.enqueue("note", {"data": [{"k": "\0"}]}), Unstorable, "note.data[0].k"),
    "NUL in a key": (lambda app: app.enqueue("note", {"data": {"\0": 1}}), Unstorable, "note.data"),
    "lone surrogate": (lambda app: app.enqueue("note", {"text": "\ud800"}), Unstorable, "note.text"),
    "lone surrogate, nested": (
        lambda app: app.enqueue("note", {"data": ["\udfff"]}),
        InvalidInput,
        "note.data[0]",
    ),
    "2 MiB": (lambda app: app.enqueue("note", {"text": "x" * (2 << 20)}), Unstorable, "note.text"),
    "too deep": (lambda app: app.enqueue("note", {"data": DEEP}), Unstorable, None),
    "negative delay": (lambda app: app.enqueue("add", {"a": 1}, delay=-1), InvalidInput, "delay"),
    "a delay that is none": (lambda app: app.enqueue("add", {"a": 1}, delay="soon"), InvalidInput, "delay"),
    "endless delay": (lambda app: app.enqueue("add", {"a": 1}, delay=math.inf), InvalidInput, "delay"),
    "priority out of range": (
        lambda app: app.enqueue("add", {"a": 1}, priority=101),
        InvalidInput,
        "priority",
    ),
    "malformed id": (lambda app: app.get("42"), InvalidInput, "id"),
    "empty id": (lambda app: app.get(""), InvalidInput, "id"),
    "id of another type": (lambda app: app.get(42), InvalidInput, "id"),
    "unknown state": (lambda app: app.jobs(state="lost"), InvalidInput, "state"),
    "page too long": (lambda app: app.jobs(limit=100_000), InvalidInput, "limit"),
    "malformed cursor": (lambda app: app.jobs(before="x'; drop table job"), InvalidInput, "before"),
    "empty queue": (lambda app: app.queues.pause(" "), InvalidInput, "queue"),
    "pause for no time": (lambda app: app.queues.pause("q", for_=0), InvalidInput, "for_"),
    "negative age": (lambda app: app.prune(-1), InvalidInput, "older_than"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_naming_the_field_and_nothing_is_stored(tasks, backend, case):
    call, error, field = CASES[case]
    with pytest.raises(error) as caught:
        call(tasks)
    assert caught.value.remedy
    assert str(caught.value).startswith(caught.value.field)
    if field is not None:
        assert caught.value.field == field
    assert backend.query("SELECT count(*) FROM leasehold.job") == [(0,)]
    assert backend.query("SELECT count(*) FROM leasehold.pause") == [(0,)]


def test_text_that_only_looks_like_a_nul_is_kept(tasks):
    job = tasks.enqueue("note", {"text": "\\u0000", "data": ["é", "😀", 2**70]})
    assert job.args == {"text": "\\u0000", "data": ["é", "😀", 2**70]}


def test_a_job_that_is_not_there_is_said_so(tasks):
    with pytest.raises(JobNotFound, match="pruned"):
        tasks.get("01890000-0000-7000-8000-000000000000")


def test_postgres_without_a_schema_is_refused_with_the_remedy(postgres_url, postgres_schema):
    with Leasehold(postgres_url, schema=postgres_schema) as app:
        with pytest.raises(SchemaOutdated, match=r"app\.upgrade\(\)"):
            app.count()
        assert app.upgrade() == list(read_migrations("leasehold.stores.postgres"))
        assert app.upgrade() == []
        assert app.count()[State.QUEUED] == 0


def test_sqlite_makes_and_upgrades_itself(tmp_path):
    with Leasehold(f"sqlite:///{tmp_path}/new/jobs.db") as app:
        assert app.count()[State.QUEUED] == 0


def test_the_password_stays_out_of_messages():
    with (
        Leasehold("postgresql://me:hunter2@127.0.0.1:1/db") as app,
        pytest.raises(DatabaseUnreachable) as caught,
    ):
        app.count()
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
