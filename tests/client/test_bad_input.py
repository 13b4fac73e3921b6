"""Bad input gets one clear error that names the field and the remedy, the same on both stores; nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import BaseModel

from leasehold import Leasehold, Retry, State
from leasehold.errors import (
    DatabaseUnreachable,
    InvalidArguments,
    InvalidInput,
    JobNotFound,
    NotSerializable,
    SchemaOutdated,
    UnknownTask,
)
from leasehold.operations import jobs
from leasehold.stores.database.statements import read_migrations
from tests.backends import put


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

CASES: dict[str, tuple[Callable[[Leasehold], object], type[InvalidInput], str | None]] = {
    "wrong argument type": (lambda app: app.enqueue("add", {"a": "x"}), InvalidArguments, "a"),
    "missing argument": (lambda app: app.enqueue("add", {}), InvalidArguments, "a"),
    "unknown argument": (lambda app: app.enqueue("add", {"a": 1, "c": 2}), InvalidArguments, "c"),
    "unknown task": (lambda app: app.enqueue("ad", {}), UnknownTask, "task"),
    "NaN": (lambda app: app.enqueue("note", {"value": math.nan}), NotSerializable, "note.value"),
    "infinity, nested": (
        lambda app: app.enqueue("note", {"data": {"x": [1, math.inf]}}),
        NotSerializable,
        "note.data.x[1]",
    ),
    "NaN in a model": (
        lambda app: app.enqueue("note", {"point": {"x": math.nan}}),
        NotSerializable,
        "note.point.x",
    ),
    "NUL": (lambda app: app.enqueue("note", {"text": "a\0b"}), NotSerializable, "note.text"),
    "NUL, nested": (
        lambda app: app.enqueue("note", {"data": [{"k": "\0"}]}),
        NotSerializable,
        "note.data[0].k",
    ),
    "NUL in a key": (lambda app: app.enqueue("note", {"data": {"\0": 1}}), NotSerializable, "note.data"),
    "lone surrogate": (lambda app: app.enqueue("note", {"text": "\ud800"}), NotSerializable, "note.text"),
    "lone surrogate, nested": (
        lambda app: app.enqueue("note", {"data": ["\udfff"]}),
        InvalidInput,
        "note.data[0]",
    ),
    "2 MiB": (lambda app: app.enqueue("note", {"text": "x" * (2 << 20)}), NotSerializable, "note.text"),
    "too deep": (lambda app: app.enqueue("note", {"data": DEEP}), NotSerializable, None),
    "negative delay": (lambda app: app.enqueue("add", {"a": 1}, delay=-1), InvalidInput, "delay"),
    "a delay that is none": (lambda app: app.enqueue("add", {"a": 1}, delay="soon"), InvalidInput, "delay"),
    "endless delay": (lambda app: app.enqueue("add", {"a": 1}, delay=math.inf), InvalidInput, "delay"),
    "priority out of range": (
        lambda app: app.enqueue("add", {"a": 1}, priority=101),
        InvalidInput,
        "priority",
    ),
    "id of another type": (lambda app: app.get(42), InvalidInput, "id"),
    "unknown state": (lambda app: app.jobs(state="lost"), InvalidInput, "state"),
    "page too long": (lambda app: app.jobs(limit=100_000), InvalidInput, "limit"),
    "malformed cursor": (lambda app: app.jobs(cursor="x'; drop table job"), InvalidInput, "cursor"),
    "empty queue": (lambda app: app.queues.pause(" "), InvalidInput, "queue"),
    "pause for no time": (lambda app: app.queues.pause("q", for_=0), InvalidInput, "for_"),
    "a page by text": (lambda app: app.jobs(limit="4"), InvalidInput, "limit"),
    "a page by half": (lambda app: app.jobs(limit=1.5), InvalidInput, "limit"),
    "a NUL in a filter": (lambda app: app.jobs(queue="a\0"), InvalidInput, "queue"),
    "half a character in a filter": (lambda app: app.jobs(lane="\ud800"), InvalidInput, "lane"),
    "a filter that is no text": (lambda app: app.jobs(task=5), InvalidInput, "task"),
    "a filter that is many": (lambda app: app.jobs(tag=["a"]), InvalidInput, "tag"),
    "a filter without end": (lambda app: app.jobs(group="g" * 10**7), InvalidInput, "group"),
    "a NUL in the inbox's filter": (lambda app: app.questions.list(group="\0"), InvalidInput, "group"),
    "an inbox by text": (lambda app: app.questions.list(limit="4"), InvalidInput, "limit"),
    "a trace that is no text": (lambda app: app.enqueue("add", {"a": 1}, trace=5), InvalidInput, "trace"),
    "a NUL in a trace": (lambda app: app.enqueue("add", {"a": 1}, trace="\0"), InvalidInput, "trace"),
    "a trace without end": (
        lambda app: app.enqueue("add", {"a": 1}, trace="t" * 10**7),
        InvalidInput,
        "trace",
    ),
    "tries by text": (
        lambda app: app.enqueue("add", {"a": 1}, retry=Retry(max_attempts="4")),
        InvalidInput,
        "retry.max_attempts",
    ),
    "endless tries": (
        lambda app: app.enqueue("add", {"a": 1}, retry=Retry(max_attempts=math.inf)),
        InvalidInput,
        "retry.max_attempts",
    ),
    "crashes by half": (
        lambda app: app.enqueue("add", {"a": 1}, retry=Retry(max_crashes=1.5)),
        InvalidInput,
        "retry.max_crashes",
    ),
    "a reason that is no text": (lambda app: app.stop(everything=True, reason=5), InvalidInput, "reason"),
    "an actor of a stop": (lambda app: app.stop(everything=True, actor="a\0"), InvalidInput, "actor"),
    "an actor of a pause": (lambda app: app.queues.pause("q", actor="\ud800"), InvalidInput, "actor"),
    "a reason of a pause": (lambda app: app.queues.pause("q", reason=5), InvalidInput, "reason"),
    "an actor of a release": (lambda app: app.group("g").release(actor=5), InvalidInput, "actor"),
    "an actor of a lane": (lambda app: app.lanes.resume("l", actor="a" * 10**7), InvalidInput, "actor"),
    "a pause until the end of time": (
        lambda app: app.queues.pause("q", until=datetime.max.replace(tzinfo=UTC)),
        InvalidInput,
        "until",
    ),
    "a stop of a task that nobody knows": (lambda app: app.stop(tasks=["ad"]), InvalidInput, "tasks"),
    "a stop of a group's unknown task": (lambda app: app.group("g").stop(scope="ad"), InvalidInput, "tasks"),
    **{
        f"at {what}": (lambda app, at=at: app.enqueue("add", {"a": 1}, at=at), InvalidInput, "at")
        for what, at in {
            "the end of time": datetime.max,  # noqa: DTZ901 (what people write for "never")
            "the end of time in UTC": datetime.max.replace(tzinfo=UTC),
            "the end of time west of it": datetime.max.replace(tzinfo=timezone(timedelta(hours=-9))),
            "the beginning of time": datetime.min.replace(tzinfo=UTC),
            "the beginning of time east of it": datetime.min.replace(tzinfo=timezone(timedelta(hours=9))),
            "a moment before 1970": datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
            "noon, as text": "noon",
        }.items()
    },
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


VERBS = {
    "cancel": lambda job, **reported: job.cancel(**reported),
    "pause": lambda job, **reported: job.pause(**reported),
    "interrupt": lambda job, **reported: job.interrupt(**reported),
    "resume": lambda job, **reported: job.resume(actor=reported["actor"]),
    "skip": lambda job, **reported: job.skip(**reported),
    "release": lambda job, **reported: job.release(actor=reported["actor"]),
    "retry": lambda job, **reported: job.retry(actor=reported["actor"]),
    "answer": lambda job, **reported: job.answer("k", 1, actor=reported["actor"]),
    "top_up": lambda job, **reported: job.top_up(actor=reported["actor"], tokens=1),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "actor", [5, "a\0b", "\ud800", "a" * 10_000_000], ids=["number", "NUL", "surrogate", "10 MB"]
)
def test_an_actor_that_cannot_be_kept_is_refused_and_nothing_is_changed(tasks, verb, actor):
    job = tasks.enqueue("add", {"a": 1})
    with pytest.raises(InvalidInput) as caught:
        VERBS[verb](job, actor=actor, reason=None)
    assert caught.value.field == "actor"
    assert len(str(caught.value)) < 1000
    assert job.refresh().state is State.QUEUED


@pytest.mark.parametrize("verb", ["cancel", "pause", "interrupt", "skip"])
@pytest.mark.parametrize("reason", [5, "a\0b", "r" * 10_000_000], ids=["number", "NUL", "10 MB"])
def test_a_reason_that_cannot_be_kept_is_refused(tasks, verb, reason):
    job = tasks.enqueue("add", {"a": 1})
    with pytest.raises(InvalidInput) as caught:
        VERBS[verb](job, actor=None, reason=reason)
    assert caught.value.field == "reason"


@pytest.mark.parametrize("text", ["nope", "", "42", "01a1e54f", "\0", "x" * 10_000])
def test_a_text_that_is_no_id_is_the_id_of_no_job(tasks, text):
    for call in (
        lambda: tasks.get(text),
        lambda: tasks.questions.answer(text, "k", 1),
        lambda: tasks.__internals__.operations.call(jobs.cancel, text),
        lambda: tasks.__internals__.operations.call(jobs.explain, text),
    ):
        with pytest.raises(JobNotFound, match="a job's id is a UUID") as caught:
            call()
        assert caught.value.job_id == text
        assert len(str(caught.value)) < 300


def test_where_a_program_gives_ids_a_wrong_one_is_bad_input(tasks):
    with pytest.raises(InvalidInput) as caught:
        tasks.enqueue("add", {"a": 1}, after=["nope"])
    assert caught.value.field == "after"


def test_a_stop_that_names_an_unknown_task_lists_those_that_are_known(tasks, backend):
    with pytest.raises(InvalidInput, match="known: add, note"):
        tasks.stop(tasks=["add", "ad"])
    # What somebody else has enqueued is known to the store.
    put(backend.open(), task="elsewhere")
    assert tasks.stop(tasks=["elsewhere"]).cancelled == 1
    with Leasehold(backend.url, schema=backend.schema) as bare:
        assert bare.stop(tasks=["elsewhere"], dry_run=True).cancelled == 0
        with pytest.raises(InvalidInput, match="no task is named 'nobody'"):
            bare.stop(tasks=["nobody"])


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
