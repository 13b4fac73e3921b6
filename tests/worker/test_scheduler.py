"""The scheduler of a worker, and `@app.schedule`: declared, due, made, steered."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
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


def scheduler_of(app: Leasehold, worker: str = "w") -> Scheduler:
    inside = app.__internals__
    return Scheduler(
        inside.store, worker, inside.tasks.definitions, lambda: list(inside.tasks.schedules.values())
    )


def tasks(app: Leasehold) -> list[str]:
    return [job.task for job in reversed(app.jobs().jobs)]


def test_a_function_becomes_a_task_that_is_due_by_itself(place):
    app, clock = place

    @app.schedule(every="1h")
    def renew() -> None: ...

    scheduler = scheduler_of(app)
    assert scheduler.beat() == pytest.approx(5.0)
    assert tasks(app) == []
    clock.advance(HOUR)
    assert scheduler.beat() > 1
    (job,) = app.jobs().jobs
    assert (job.task, job.tags, job.available_at) == ("renew", ("renew",), clock.now())
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
    reported = [datetime.fromisoformat(app.get(job.id).args["tick"]) for job in reversed(app.jobs().jobs)]
    assert reported == [datetime(2026, 1, day, 2, tzinfo=UTC) for day in (1, 2)]


def test_two_workers_make_one_job_a_tick(place):
    app, clock = place

    @app.schedule(every="1h", overlap="allow")
    def renew() -> None: ...

    one, other = scheduler_of(app, "a"), scheduler_of(app, "b")
    one.beat(), other.beat()
    for _ in range(3):
        clock.advance(HOUR)
        one.beat(), other.beat()
    assert tasks(app) == ["renew"] * 3


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
    assert tasks(app) == ["well"]
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
    assert tasks(app) == []


def test_a_changed_interval_takes_effect_at_the_next_start_and_says_so(place, caplog):
    app, clock = place

    @app.schedule(every="1h")
    def renew() -> None: ...

    scheduler_of(app, "a").beat()
    app.schedule(every="10m")(renew)
    with caplog.at_level(logging.WARNING):
        scheduler_of(app, "b").beat()
    assert "schedule renew has changed: every 10m, was every 1h" in caplog.text
    assert app.schedules.get("renew").next_at == clock.now() + timedelta(minutes=10)


def test_a_deploy_that_changes_only_arguments_says_that(place, caplog):
    app, _ = place

    @app.task
    def report(day: int) -> None: ...

    app.schedule(every="1h", args={"day": 1})(report)
    scheduler_of(app, "a").beat()
    app.schedule(every="1h", args={"day": 2})(report)
    with caplog.at_level(logging.WARNING):
        scheduler_of(app, "b").beat()
    assert "schedule report has changed: still every 1h, with new settings" in caplog.text


def test_one_that_cannot_even_be_read_does_not_hold_up_the_others(place, caplog):
    app, clock = place

    @app.task
    def report() -> None: ...

    app.schedules.set("a", "report", cron="0 * * * *")
    app.schedules.set("b", "report", every="1h")
    stored = app.__internals__.store
    broken = [replace(row, tz="Mars/Olympus") if row.name == "a" else row for row in stored.list_schedules()]
    scheduler = scheduler_of(app)
    scheduler.beat()
    clock.advance(HOUR)
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.ERROR):
        # As on a machine that has no data of this zone.
        patch.setattr(
            type(stored), "list_schedules", lambda _: [replace(row, now=clock.now()) for row in broken]
        )
        assert scheduler.beat() > 1
    assert "schedule a: its tick failed" in caplog.text
    assert [job.tags for job in app.jobs().jobs] == [("b",)]


@pytest.mark.parametrize("missed", ["one", "skip", "all"])
def test_ticks_of_an_outage_are_dealt_with_by_policy(place, missed):
    app, clock = place

    @app.schedule(every="1h", missed=missed, overlap="allow")
    def renew(tick: datetime) -> None: ...

    before = scheduler_of(app, "before")
    before.beat()
    before.leave()
    due = app.schedules.get("renew").next_at
    clock.advance(3.5 * HOUR)
    after = scheduler_of(app, "after")
    after.beat()
    reported = [datetime.fromisoformat(app.get(job.id).args["tick"]) for job in reversed(app.jobs().jobs)]
    hours = {"one": [2], "skip": [], "all": [0, 1, 2]}[missed]
    assert reported == [due + timedelta(hours=n) for n in hours]
    found = app.schedules.get("renew")
    assert (found.next_at, found.passed) == (due + timedelta(hours=3), 3 - len(hours))


@pytest.mark.parametrize(
    ("night", "ran"), [("2026-03-28T12:00", "2026-03-29T01:00"), ("2026-10-24T12:00", "2026-10-25T00:30")]
)
def test_a_daily_job_runs_once_on_both_change_nights(place, night, ran):
    app, clock = place
    clock.reset(datetime.fromisoformat(night).replace(tzinfo=UTC))

    @app.schedule(cron="30 2 * * *", tz="Europe/Berlin", missed="all", overlap="allow")
    def nightly(tick: datetime) -> None: ...

    schedulers = [scheduler_of(app, worker) for worker in "ab"]
    for _ in range(24 * 4):
        for scheduler in schedulers:
            scheduler.beat()
        clock.advance(900)
    reported = [datetime.fromisoformat(app.get(job.id).args["tick"]) for job in app.jobs().jobs]
    assert reported == [datetime.fromisoformat(ran).replace(tzinfo=UTC)]


def test_a_worker_that_drains_makes_no_more_ticks(place):
    app, clock = place

    @app.schedule(every="1h")
    def renew() -> None: ...

    scheduler = scheduler_of(app)
    scheduler.beat()
    clock.advance(HOUR)
    scheduler.retire()
    scheduler.beat()
    assert tasks(app) == []


def test_a_drain_stops_the_scheduler_before_the_jobs_that_still_run(place):
    app, clock = place
    began, go = threading.Event(), threading.Event()

    @app.schedule(every="1h", overlap="allow")
    def renew() -> None:
        began.set()
        go.wait(30)

    async def live() -> None:
        async with app.worker(threads=1, concurrency=1) as worker:
            await renew.aenqueue()
            assert await asyncio.to_thread(began.wait, 30)
            worker.request_drain()
            clock.advance(HOUR)
            await asyncio.to_thread(worker._scheduler.beat)
            made = len(await asyncio.to_thread(tasks, app))
            go.set()
            assert made == 1

    asyncio.run(asyncio.wait_for(live(), 60))
    assert tasks(app) == ["renew"]


def test_made_changed_run_paused_and_deleted_at_run_time(place):
    app, clock = place

    @app.task
    def report(day: int) -> None: ...

    made = app.schedules.set("r", "report", {"day": 1}, cron="0 3 * * 1", tz="Europe/Berlin")
    assert (made.task, made.args, made.source) == ("report", '{"day":1}', "set")
    changed = app.schedules.set("r", "report", {"day": 2}, every="1h")
    assert (changed.cron, changed.next_at) == (None, clock.now() + timedelta(hours=1))
    by_hand = app.schedules.run("r")
    assert (by_hand.args, app.schedules.get("r").last_job) == ({"day": 2}, by_hand.id)
    assert app.schedules.pause("r", "too much", actor="anna").paused_by == "anna"
    scheduler = scheduler_of(app)
    clock.advance(HOUR)
    scheduler.beat()
    assert len(tasks(app)) == 1
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


def test_a_drain_of_the_sandbox_makes_up_for_all_that_was_missed(tmp_path):
    app = Leasehold("sqlite:///never.db")

    @app.schedule(every="1h", missed="all", overlap="allow")
    def renew() -> None: ...

    with sandbox(app, tmp_path) as box:
        box.drain()
        box.clock.advance(250 * HOUR)
        assert box.drain() == 250


async def _serve(app: Leasehold) -> None:
    async with app.worker(threads=1, concurrency=1):
        job = None
        while job is None or not job.jobs:
            job = await app.ajobs(state="succeeded")


def test_a_worker_makes_and_runs_the_tick_of_its_start(tmp_path):
    with Leasehold(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.schedule(every="1d", at_start=True)
        def renew() -> None: ...

        asyncio.run(asyncio.wait_for(_serve(app), 30))
        assert app.schedules.get("renew").hosts == 0, "it has signed off"
