"""The scheduler of a worker, and `@app.schedule`: declared, due, made, steered."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from leasehold import Leasehold
from leasehold.errors import InvalidArguments, InvalidInput, ScheduleNotFound, UnknownTask
from leasehold.testing import ManualClock, sandbox
from leasehold.worker.scheduler import Scheduler

HOUR = 3600


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """An app on each store, with a clock that stands still."""
    clock = ManualClock()
    if request.param == "sqlite":
        app = Leasehold(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    else:
        backend = request.getfixturevalue("_postgres_backend")
        backend.empty()
        app = Leasehold(backend.url, schema=backend.schema, clock=clock)
    with app:
        yield app, clock


def scheduler_of(app: Leasehold, owner: str = "w") -> Scheduler:
    inside = app.__internals__
    return Scheduler(
        inside.store, owner, inside.tasks.definitions, lambda: list(inside.tasks.schedules.values())
    )


def kinds(app: Leasehold) -> list[str]:
    return [job.kind for job in reversed(app.jobs().jobs)]


def test_a_function_becomes_a_task_that_is_due_by_itself(place):
    app, clock = place

    @app.schedule(every="1h")
    def renew() -> None: ...

    scheduler = scheduler_of(app)
    assert scheduler.beat() == pytest.approx(5.0)
    assert kinds(app) == []
    clock.advance(HOUR)
    assert scheduler.beat() > 1
    (job,) = app.jobs().jobs
    assert (job.kind, job.tags, job.available_at) == ("renew", ("renew",), clock.now())
    assert app.schedules.get("renew").last_job == job.id


def test_a_task_keeps_its_settings_and_its_arguments_are_checked_where_they_are_written(place):
    app, clock = place

    @app.schedule(every="1h", name="eu", args={"region": "eu"})
    @app.task(queue="reports", priority=7, tags=("daily",))
    def report(region: str) -> None: ...

    with pytest.raises(InvalidArguments):
        app.schedule(every="1h", name="bad", args={"region": 7})(report)
    with pytest.raises(InvalidArguments):
        app.schedule(every="1h", name="bad")(report)
    scheduler = scheduler_of(app)
    scheduler.beat()
    clock.advance(HOUR)
    scheduler.beat()
    (job,) = app.jobs().jobs
    assert (job.queue, job.priority, job.tags) == ("reports", 7, ("daily", "eu"))
    assert app.get(job.id).args == {"region": "eu"}


def test_an_argument_called_tick_gets_the_time_of_the_tick(place):
    app, clock = place

    @app.schedule(cron="0 3 * * *", tz="Europe/Berlin", missed="all", overlap="allow")
    def nightly(tick: datetime) -> None: ...

    scheduler = scheduler_of(app)
    scheduler.beat()
    clock.advance(2 * 86_400)
    scheduler.beat()
    told = [datetime.fromisoformat(app.get(job.id).args["tick"]) for job in reversed(app.jobs().jobs)]
    assert told == [datetime(2026, 1, day, 2, tzinfo=UTC) for day in (1, 2)]


def test_two_workers_make_one_job_a_tick(place):
    app, clock = place

    @app.schedule(every="1h", overlap="allow")
    def renew() -> None: ...

    one, other = scheduler_of(app, "a"), scheduler_of(app, "b")
    one.beat(), other.beat()
    for _ in range(3):
        clock.advance(HOUR)
        one.beat(), other.beat()
    assert kinds(app) == ["renew"] * 3


def test_a_tick_that_fails_is_told_and_the_others_go_on(place, caplog):
    app, clock = place

    @app.task
    def gone(count: int) -> None: ...

    @app.schedule(every="1h")
    def well() -> None: ...

    app.schedules.set("bad", "gone", {"count": 1}, every="1h")
    app.__internals__.tasks.definitions.pop("gone")

    @app.task(name="gone")
    def changed(number: int) -> None: ...

    scheduler = scheduler_of(app)
    scheduler.beat()
    clock.advance(HOUR)
    with caplog.at_level(logging.ERROR):
        scheduler.beat()
    assert kinds(app) == ["well"]
    assert "schedule bad: its tick failed" in caplog.text
    assert app.schedules.get("bad").next_at > clock.now(), (
        "it does not fail again and again for the same tick"
    )


def test_a_schedule_that_is_gone_from_the_code_is_orphaned_and_makes_nothing(place):
    app, clock = place

    @app.schedule(every="1h")
    def renew() -> None: ...

    before = scheduler_of(app, "before")
    before.beat()
    before.leave()
    app.__internals__.tasks.schedules.clear()
    scheduler = scheduler_of(app)
    clock.advance(HOUR)
    scheduler.beat()
    assert app.schedules.get("renew").orphaned
    assert kinds(app) == []


def test_a_changed_interval_takes_effect_at_the_next_start_and_says_so(place, caplog):
    app, clock = place

    @app.schedule(every="1h")
    def renew() -> None: ...

    scheduler_of(app, "a").beat()
    app.schedule(every="10m")(renew)
    with caplog.at_level(logging.WARNING):
        scheduler_of(app, "b").beat()
    assert "schedule renew has changed: every 600 s, was every 3600 s" in caplog.text
    assert app.schedules.get("renew").next_at == clock.now() + timedelta(minutes=10)


def test_a_worker_that_drains_makes_no_more_ticks(place):
    app, clock = place

    @app.schedule(every="1h")
    def renew() -> None: ...

    scheduler = scheduler_of(app)
    scheduler.beat()
    clock.advance(HOUR)
    scheduler.retire()
    scheduler.beat()
    assert kinds(app) == []


def test_made_changed_run_paused_and_deleted_at_run_time(place):
    app, clock = place

    @app.task
    def report(day: int) -> None: ...

    made = app.schedules.set("r", "report", {"day": 1}, cron="0 3 * * 1", tz="Europe/Berlin")
    assert (made.kind, made.args, made.source) == ("report", '{"day":1}', "set")
    changed = app.schedules.set("r", "report", {"day": 2}, every="1h")
    assert (changed.cron, changed.next_at) == (None, clock.now() + timedelta(hours=1))
    by_hand = app.schedules.run("r")
    assert (by_hand.args, app.schedules.get("r").last_job) == ({"day": 2}, by_hand.id)
    assert app.schedules.pause("r", "too much", actor="anna").paused_by == "anna"
    scheduler = scheduler_of(app)
    clock.advance(HOUR)
    scheduler.beat()
    assert len(kinds(app)) == 1
    assert app.schedules.resume("r") is True
    app.schedules.delete("r")
    for verb in (app.schedules.get, app.schedules.run, app.schedules.delete, app.schedules.pause):
        with pytest.raises(ScheduleNotFound):
            verb("r")
    with pytest.raises(UnknownTask):
        app.schedules.set("r", "nope", every="1h")


def test_one_name_is_one_schedule():
    app = Leasehold("sqlite:///never.db")

    @app.schedule(every="1h", name="x")
    def one() -> None: ...

    with pytest.raises(InvalidInput, match="declared already"):

        @app.schedule(every="1h", name="x")
        def other() -> None: ...


def test_the_test_clock_drives_schedules(tmp_path):
    app = Leasehold("sqlite:///never.db")
    seen: list[int] = []

    @app.schedule(every="1h", missed="all", overlap="allow", at_start=True)
    def renew() -> None:
        seen.append(1)

    with sandbox(app, tmp_path) as box:
        box.drain()
        assert seen == []
        box.clock.advance(2 * HOUR)
        assert box.drain() == 2
        assert box.drain() == 0
    assert len(seen) == 2


async def _serve(app: Leasehold) -> None:
    async with app.worker(threads=1, concurrency=1):
        job = None
        while job is None or not job.jobs:
            job = await app.ajobs(state="succeeded")


def test_a_worker_makes_and_runs_the_tick_of_its_start(tmp_path):
    import asyncio

    with Leasehold(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.schedule(every="1d", at_start=True)
        def renew() -> None: ...

        asyncio.run(asyncio.wait_for(_serve(app), 30))
        assert app.schedules.get("renew").hosts == 0, "it has signed off"
