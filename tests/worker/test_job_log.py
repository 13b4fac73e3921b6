"""What a worker says about its jobs, and that what handlers log says whose it is."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading

import pytest

from leasehold import Context, Pause, Retry, Snooze, State, SyncContext
from leasehold.domain.policy import Policy
from leasehold.surfaces.cli.logs import JsonLines, TextLines
from leasehold.worker.reaper import Reaper
from tests.backends import put
from tests.contract.lives import claim_one
from tests.workers import burst, until


@pytest.fixture
def lines(caplog):
    """Of `leasehold.jobs`, as (level, text)."""
    caplog.set_level(logging.DEBUG, logger="leasehold.jobs")

    def found(job=None, level=None):
        return [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == "leasehold.jobs" and (job is None or record.job == job.id)
            if level is None or record.levelname == level
        ]

    return found


def test_a_job_that_succeeds_has_a_line_for_its_start_and_one_for_its_end(app, lines, caplog):
    @app.task(queue="q")
    async def work() -> None: ...

    job = work.enqueue()
    burst(app, queues="q")
    started, ended = lines(job)
    assert started == ("DEBUG", f"job {job.id} (work): attempt 1 starts")
    assert ended[0] == "INFO"
    assert re.fullmatch(rf"job {job.id} \(work\): attempt 1 succeeded after \d+\.\d{{3}} s", ended[1])
    for record in caplog.records:
        if record.name == "leasehold.jobs":
            assert (record.job, record.task, record.attempt, record.queue) == (job.id, "work", 1, "q")


def test_a_success_by_complete_and_one_with_follow_ups_have_their_lines_too(app, lines):
    @app.task
    def other() -> None: ...

    @app.task
    async def completes(ctx: Context) -> None:
        async with ctx.complete():
            pass

    @app.task
    def follows(ctx: SyncContext) -> None:
        ctx.enqueue(other)

    jobs = [completes.enqueue(), follows.enqueue()]
    burst(app)
    assert [len(lines(job, "INFO")) for job in jobs] == [1, 1]
    assert len(lines(level="INFO")) == 3


def test_a_retry_is_a_warning_with_its_reason_and_a_failure_an_error_with_its_traceback(app, lines):
    @app.task(retry=Retry(max_attempts=2, backoff="50ms"))
    def fails() -> None:
        raise ValueError("no such order")

    @app.task(retry=Retry(max_attempts=1), timeout=0.2)
    async def hangs() -> None:
        await asyncio.sleep(60)

    job, late = fails.enqueue(), hangs.enqueue()

    async def main() -> None:
        async with app.worker(retention=None, poll=0.02):
            await until(
                lambda: job.refresh().state is State.FAILED and late.refresh().state is State.TIMED_OUT
            )

    asyncio.run(main())
    ((_, warned),) = lines(job, "WARNING")
    assert warned.startswith(f"job {job.id} (fails): attempt 1 failed, next try ")
    assert warned.endswith(": ValueError: no such order")
    ((_, failed),) = lines(job, "ERROR")
    assert failed.startswith(f"job {job.id} (fails): attempt 2 failed: ValueError: no such order\n")
    assert "in fails" in failed
    ((_, timed_out),) = lines(late, "ERROR")
    assert "timed out: the attempt took longer than 0.2 s" in timed_out


def test_what_is_no_failure_is_information(app, lines):
    @app.task
    async def pauses() -> None:
        raise Pause("look at this")

    @app.task
    async def snoozes() -> None:
        raise Snooze(3600)

    @app.task
    async def asks(ctx: Context) -> None:
        await ctx.ask("k", "May I?")

    @app.task
    async def is_cancelled(ctx: Context) -> None:
        (await app.aget(ctx.job_id)).cancel("enough")
        await asyncio.sleep(60)

    paused, snoozed, requested, cancelled = (task.enqueue() for task in (pauses, snoozes, asks, is_cancelled))
    burst(app)
    assert [text.partition(": ")[2] for _, text in lines(paused, "INFO")] == [
        "attempt 1 is paused: look at this"
    ]
    assert "attempt 1 snoozed, next try at 2" in lines(snoozed, "INFO")[0][1]
    assert "attempt 1 is waiting" in lines(requested, "INFO")[0][1]
    assert "attempt 1 was cancelled: enough" in lines(cancelled, "INFO")[-1][1]
    assert lines(level="WARNING") == lines(level="ERROR") == []


def test_a_lost_lease_is_a_warning_that_names_its_worker(store, clock, lines):
    job = put(store, task="work", policy=Policy(backoff=0))
    claim_one(store)
    reaper = Reaper(store, 5.0)
    clock.advance(31)
    reaper.sweep()
    clock.advance(10)
    reaper.sweep()
    ((_, text),) = lines(job, "WARNING")
    assert text == f"job {job.id} (work): attempt 1 was lost with its worker worker-1; now queued"


def test_nothing_is_formatted_for_a_level_that_nobody_hears(app, caplog):
    caplog.set_level(logging.WARNING, logger="leasehold.jobs")

    @app.task
    async def work() -> None: ...

    work.enqueue()
    burst(app)
    assert [record for record in caplog.records if record.name == "leasehold.jobs"] == []


# -- what handlers log -------------------------------------------------------------------------------------------------


@pytest.fixture
def as_async(caplog):
    caplog.set_level(logging.INFO)
    return lambda: [record for record in caplog.records if record.name == "shop"]


def test_every_record_of_a_handler_says_whose_it_is(app, as_async):
    log = logging.getLogger("shop")

    def in_step() -> None:
        log.info("step")

    @app.task(queue="q")
    async def on_loop(ctx: Context) -> None:
        log.info("loop")
        await asyncio.create_task(asyncio.to_thread(log.info, "child"))
        await ctx.step("s", in_step)

    @app.task(queue="q")
    def in_thread() -> None:
        log.info("thread")

    first, second = on_loop.enqueue(), in_thread.enqueue()
    burst(app, queues="q")
    log.info("outside")
    found = {record.getMessage(): record for record in as_async()}
    for said, job in (("loop", first), ("child", first), ("step", first), ("thread", second)):
        record = found[said]
        assert (record.job, record.task, record.attempt, record.queue) == (job.id, job.task, 1, "q"), said
    assert not hasattr(found["outside"], "job")
    assert logging.getLogRecordFactory() is logging.LogRecord


def test_a_handlers_own_fields_of_the_same_names_are_left_alone(app, as_async):
    @app.task(queue="q")
    def work() -> None:
        logging.getLogger("shop").info("mine", extra={"job": "own", "attempt": 7})

    job = work.enqueue()
    burst(app, queues="q")
    assert job.refresh().state is State.SUCCEEDED, job.error
    (record,) = as_async()
    assert (record.job, record.attempt, record.task) == ("own", 7, "work")


def test_a_record_factory_of_the_user_still_makes_the_records(app, as_async):
    def own(*args, **kwargs):
        record = logging.LogRecord(*args, **kwargs)
        record.span = "s1"
        return record

    @app.task(queue="q")
    def work() -> None:
        logging.getLogger("shop").info("said")

    work.enqueue()
    logging.setLogRecordFactory(own)
    try:
        burst(app, queues="q")
        assert logging.getLogRecordFactory() is own
    finally:
        logging.setLogRecordFactory(logging.LogRecord)
    (record,) = as_async()
    assert (record.span, record.task) == ("s1", "work")


def test_text_and_json_lines_show_them(app, caplog):
    done = threading.Event()
    texts: list[str] = []

    class Both(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.extend((TextLines().format(record), JsonLines().format(record)))

    @app.task(queue="q")
    def work() -> None:
        logging.getLogger("shop").warning("low on %s", "tea")
        done.set()

    job = work.enqueue()
    handler = Both()
    logging.getLogger("shop").addHandler(handler)
    try:
        burst(app, queues="q")
    finally:
        logging.getLogger("shop").removeHandler(handler)
    text, line = texts
    assert text.endswith(f" WARNING [work {job.id} #1] low on tea")
    assert json.loads(line).items() >= {
        "message": "low on tea", "job": job.id, "task": "work", "attempt": 1, "queue": "q", "level": "warning",
    }.items()  # fmt: skip
