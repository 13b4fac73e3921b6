"""What a producer writes, and what stands in the row afterwards."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel

from leasehold import Leasehold, Retry, State
from leasehold.errors import DuplicateJob, InvalidInput, InvalidTask
from leasehold.tasks.settings import CallOptions, CallSettings, TaskOptions, TaskSettings
from leasehold.testing import START


class Page(BaseModel):
    url: str
    depth: int = 1


checked: list[int] = []


def check(number: int) -> int:
    checked.append(number)
    return number


Checked = Annotated[int, AfterValidator(check)]


def test_a_task_is_still_the_plain_function(app):
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    assert add(2, 3) == 5
    assert add.__name__ == "add"


def test_enqueue_takes_the_tasks_own_arguments_by_position_and_by_name(app):
    @app.task
    def add(a: int, b: int = 7) -> int:
        return a + b

    assert add.enqueue(1, 2).args == {"a": 1, "b": 2}
    assert add.enqueue(b=2, a=1).args == {"a": 1, "b": 2}


def test_a_default_stays_the_functions_and_is_not_stored(app):
    @app.task
    def add(a: int, b: int = 7) -> int:
        return a + b

    assert add.enqueue(1).args == {"a": 1}


def test_arguments_are_stored_as_their_annotations_read_them(app):
    @app.task
    def crawl(page: Page, since: datetime, tries: int) -> None: ...

    job = crawl.enqueue({"url": "u"}, "2026-01-01T00:00:00Z", "3")
    assert job.args == {"page": {"url": "u"}, "since": "2026-01-01T00:00:00Z", "tries": 3}


def test_the_context_is_not_an_argument(app):
    @app.task
    async def work(ctx, target: str) -> None: ...

    assert work.enqueue(target="t").args == {"target": "t"}


def test_settings_of_the_task_stand_in_the_row(app):
    @app.task(
        queue="agents",
        priority="high",
        lane="{target}",
        unique="{target}/{part}",
        lease=60,
        tags=("x",),
        deadline="6h",
        on_lost="fail",
        retry=Retry(max_attempts=5, backoff=0),
    )
    def work(target: str, part: int = 1) -> None: ...

    row = work.enqueue("t").__row__
    assert (row.queue, row.priority, row.lane, row.unique_key) == ("agents", 10, "t", "t/1")
    assert (row.lease_seconds, row.tags) == (60.0, ("x",))
    assert row.deadline_at == START + timedelta(hours=6)
    assert (row.policy.on_lost, row.policy.max_attempts, row.policy.backoff) == ("fail", 5, 0.0)


def test_using_changes_one_call_and_not_the_task(app):
    @app.task(priority=3)
    def work() -> None: ...

    changed = work.using(delay="10m", priority="low", group="g", hold=True).enqueue().__row__
    assert (changed.priority, changed.group, changed.state) == (-10, "g", State.PENDING)
    assert changed.available_at == START + timedelta(minutes=10)
    assert work.enqueue().__row__.priority == 3


def test_using_adds_up(app):
    @app.task
    def work() -> None: ...

    row = work.using(delay=5).using(group="g").enqueue().__row__
    assert (row.available_at, row.group) == (START + timedelta(seconds=5), "g")


def test_an_instant_of_the_users_own_is_kept(app):
    @app.task
    def work() -> None: ...

    at = datetime(2027, 3, 1, 12, tzinfo=UTC)
    assert work.using(at=at).enqueue().available_at == at


def test_enqueue_by_name_needs_no_import_of_the_task(app):
    @app.task(name="pkg.add")
    def add(a: int) -> int:
        return a

    assert app.enqueue("pkg.add", {"a": 1}, priority=5).__row__.priority == 5


def test_many_jobs_are_one_transaction(app):
    @app.task
    def add(a: int) -> int:
        return a

    jobs = add.enqueue_many([{"a": n} for n in range(2500)])
    assert [job.args["a"] for job in (jobs[0], jobs[-1])] == [0, 2499]
    with pytest.raises(ValueError, match="a: task 'add' refused"):
        add.enqueue_many([{"a": 1}, {"a": "x"}])
    assert app.count()[State.QUEUED] == 2500


def test_a_duplicate_leads_to_the_job_that_is_there(app):
    @app.task(unique="{a}")
    def add(a: int) -> int:
        return a

    first, second = add.enqueue(1), add.enqueue(1)
    assert (first.created, second.created) == (True, False)
    assert first == second
    assert add.enqueue(2) != first


def test_a_duplicate_may_be_raised_naming_its_holder(app):
    @app.task(unique="{a}", on_duplicate="raise")
    def add(a: int) -> int:
        return a

    first = add.enqueue(1)
    with pytest.raises(DuplicateJob) as caught:
        add.enqueue(1)
    assert caught.value.job_id == first.id


def test_the_async_twins_do_the_same(app):
    @app.task
    def add(a: int) -> int:
        return a

    async def produce() -> list[str]:
        one = await add.aenqueue(1)
        two = await app.aenqueue("add", {"a": 2})
        many = await add.aenqueue_many([{"a": 3}])
        return [job.id for job in (one, two, *many)]

    assert [app.get(job_id).args["a"] for job_id in asyncio.run(produce())] == [1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"lane": "{nobody}"}, "lane"),
        ({"lane": "{a.__class__}"}, "lane"),
        ({"unique": "{a!r}"}, "unique"),
        ({"lane": "{"}, "lane"),
        ({"priority": 101}, "priority"),
        ({"priority": "urgent"}, "priority"),
        ({"lease": 30, "heartbeat": 11}, "heartbeat"),
        ({"lease": 0}, "lease"),
        ({"deadline": "soon"}, "deadline"),
        ({"retry": Retry(max_attempts=0)}, "retry.max_attempts"),
        ({"retry": 3}, "retry"),
        ({"on_lost": "ignore"}, "on_lost"),
        ({"queue": ""}, "queue"),
        ({"queue": "a b"}, "queue"),
        ({"tags": "x"}, "tags"),
        ({"quue": "x"}, "quue"),
    ],
)
def test_a_wrong_setting_is_refused_at_registration_naming_it(settings, field):
    app = Leasehold("sqlite:///never-opened.db")
    with pytest.raises(InvalidInput, match="; ") as caught:

        @app.task(**settings)
        def work(a: int) -> None: ...

    assert caught.value.field == field


@pytest.mark.parametrize("source", ["def work(*a): ...", "def work(**a): ...", "def work(a, /): ..."])
def test_a_task_whose_arguments_have_no_names_is_refused(source):
    space: dict[str, object] = {}
    exec(source, space)
    with pytest.raises(InvalidTask, match="name every argument"):
        Leasehold("sqlite:///never-opened.db").task(space["work"])


def test_two_tasks_of_one_name_are_refused(app):
    @app.task(name="same")
    def one() -> None: ...

    with pytest.raises(ValueError, match="registered already"):

        @app.task(name="same")
        def other() -> None: ...


def test_the_keywords_that_editors_show_are_the_settings_there_are():
    assert set(TaskOptions.__annotations__) == set(TaskSettings.__dataclass_fields__)
    assert set(CallOptions.__annotations__) >= set(CallSettings.__dataclass_fields__)
    of_calls = set(TaskSettings.__dataclass_fields__) | set(CallSettings.__dataclass_fields__) | {"tenant"}
    of_tasks_alone = {
        "queueing",
        "mirror",
        "retention",
        "sensitive",
        "run_in",
        "memory",
        "cpu_time",
        "expose",
    }
    assert set(CallOptions.__annotations__) == of_calls - of_tasks_alone


USE = """\
from leasehold import Leasehold
app = Leasehold()
@app.task
def add(a: int, b: int) -> int: return a + b
@app.task(queue="x", priority=3)
async def find(t: str) -> list[int]: return []
total: int = add.enqueue(1, 2).result()
found: list[int] = find.enqueue("x").result()
add.enqueue("q", 2)
add.using(prio=1)
find.enqueue(1)
"""


@pytest.mark.slow
def test_a_type_checker_sees_wrong_arguments_and_settings(tmp_path):
    file = tmp_path / "use.py"
    file.write_text(USE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
    reported = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    wrong = [line.split(":")[1] for line in reported.splitlines() if ": error:" in line]
    assert wrong == ["9", "10", "11"], reported


@pytest.mark.parametrize("place", [0, 1, 99, 150, 199])
def test_one_wrong_call_among_many_is_named_and_nothing_is_stored(backend, place):
    """On the database's own clock: by then PostgreSQL may have been sent the calls before it."""
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task
        def note(number: int) -> None: ...

        calls = [{"number": n} for n in range(200)]
        calls[place] = {"number": "many"}
        with pytest.raises(ValueError, match="number: task 'note' refused"):
            note.enqueue_many(calls)
        assert not any(app.count().values())
        assert len(note.enqueue_many([{"number": n} for n in range(200)])) == 200
        assert app.count()[State.QUEUED] == 200


def test_the_same_many_calls_twice_make_them_once(backend):
    """A repeat after a lost reply, which PostgreSQL refuses as a COPY."""
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task
        def note(number: int) -> None: ...

        jobs = note._blueprint.make([{"number": n} for n in range(200)])
        assert [one.created for one in app.__internals__.store.enqueue(jobs)] == [True] * 200
        assert [one.created for one in app.__internals__.store.enqueue(jobs)] == [False] * 200
        assert app.count()[State.QUEUED] == 200


def test_many_calls_whose_checks_take_long_are_checked_before_they_are_sent(backend, monkeypatch):
    """The server ends a statement that hangs for too long."""
    if backend.name == "postgres":
        from leasehold.stores.postgres import store
        from leasehold.stores.postgres.database import PostgresSession

        monkeypatch.setattr(store, "MOST_ENCODING_SECONDS", 0.0)
        real = PostgresSession.copy
        seen = []

        def copy(self, statement, texts):
            seen.append(len(checked))
            return real(self, statement, texts)

        monkeypatch.setattr(PostgresSession, "copy", copy)
    checked.clear()
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task
        def note(number: Checked) -> None: ...

        note.enqueue_many([{"number": n} for n in range(300)])
        assert app.count()[State.QUEUED] == 300
    assert backend.name == "sqlite" or seen == [len(checked)], "all of them, before the first was sent"


@pytest.mark.parametrize("encoding", ["latin1", "utf8"])
@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_connection_of_another_encoding_keeps_every_letter(backend, encoding):
    with Leasehold(f"{backend.url}&client_encoding={encoding}", schema=backend.schema) as app:

        @app.task
        def note(text: str) -> None: ...

        one = note.enqueue("ümlaut")
        many = note.enqueue_many([{"text": "ümlaut"}] * 60)
        assert {app.get(job.id).args["text"] for job in (one, *many)} == {"ümlaut"}


def test_many_calls_come_back_word_for_word_and_in_their_order(backend):
    """On the database's own clock, as users run it: PostgreSQL takes many plain jobs by COPY."""
    texts = ['tab\t, break\n, return\r, \\ and "quotes"', "ümlaut ✂", "\\N", "", "\\."]
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task
        def note(text: str) -> None: ...

        before = app.__internals__.store.now()
        jobs = note.enqueue_many([{"text": texts[n % len(texts)]} for n in range(200)])
        assert all(job.created for job in jobs)
        rows = [app.get(job.id).__row__ for job in jobs]
        granted = app.__internals__.store.claim("w", ["default"], 500)
        assert [grant.id for grant in granted] == [job.id for job in jobs]
        assert [app.get(job.id).args["text"] for job in jobs] == [texts[n % len(texts)] for n in range(200)]
        assert all(
            before <= row.created_at == row.available_at <= app.__internals__.store.now() for row in rows
        )
        assert [row.seq for row in rows] == sorted(row.seq for row in rows)
