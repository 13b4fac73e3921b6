"""What a handler tells while it runs, and what a watcher sees of it, on both stores."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from leasehold import Context, Retry, State, SyncContext
from leasehold.errors import InvalidInput, NotSerializable, StreamFull, WaitTimedOut
from leasehold.run import state
from leasehold.run.handler_state import HandlerState
from leasehold.types import Notification
from leasehold.worker.watchdog import WATCH_EVERY
from tests.backends import Backend
from tests.workers import burst, until


class Access:
    """Shut, nobody can write events: somebody else holds the lock that it takes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def shut(self) -> None:
        if self._backend.name == "sqlite":
            path = self._backend.url.removeprefix("sqlite:///")
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("BEGIN IMMEDIATE")
        else:
            import psycopg

            self._connection = psycopg.connect(self._backend.url)
            self._connection.execute(f'LOCK TABLE "{self._backend.schema}".stream IN EXCLUSIVE MODE')

    def open(self) -> None:
        self._connection.rollback()
        self._connection.close()


@pytest.fixture
def door(backend: Backend) -> Access:
    return Access(backend)


def stored(job) -> list[tuple[int, str, object]]:
    return [(e.seq, e.kind, e.data) for e in job.watch(timeout=0) if e.kind != "state"]


# -- emit ------------------------------------------------------------------------------------------------------------
def test_what_was_told_is_all_there_when_the_job_is_seen_at_rest(app):
    @app.task
    async def on_loop(ctx: Context) -> None:
        for n in range(50):
            ctx.emit("item", {"n": n})
        ctx.log("done")

    @app.task
    def in_thread(ctx: SyncContext) -> None:
        for n in range(50):
            ctx.emit("item", {"n": n})
        ctx.log("done")

    jobs = [on_loop.enqueue(), in_thread.enqueue()]
    burst(app)
    for job in jobs:
        assert stored(job) == [(n + 1, "item", {"n": n}) for n in range(50)]
        assert job.log().text.endswith(" done\n")
        assert job.state is State.SUCCEEDED


def test_what_a_failing_attempt_told_is_there_and_keys_are_told_once(app):
    @app.task(retry=Retry(max_attempts=2, backoff=0))
    async def crawl(ctx: Context) -> None:
        for page in ("a", "b", "c"):
            ctx.emit("page", f"{page}{ctx.attempt}", key=page)
            if ctx.attempt == 1 and page == "b":
                raise OSError("cut off")
        ctx.emit("end")

    job = crawl.enqueue()
    burst(app)
    assert stored(job) == [(1, "page", "a1"), (2, "page", "b1"), (3, "page", "c2"), (4, "end", None)]


def test_telling_never_waits_for_the_database(app, door):
    reported = []

    @app.task
    async def notify(ctx: Context) -> None:
        door.shut()
        for n in range(2000):
            ctx.emit("item", n)
            ctx.progress(n, 2000)
            ctx.log(f"line {n}")
        reported.append(len(app.__internals__.store.read_stream(ctx.job_id).updates))
        door.open()

    job = notify.enqueue()
    worker = burst(app)
    assert reported == [0], "it told everything while nothing could be written"
    found = stored(job)
    assert [data for _, kind, data in found if kind == "item"] == list(range(2000))
    assert [kind for _, kind, _ in found].count("progress") == 1
    # Each time it is written it moves on: once more if a first part was waiting at the door.
    assert found[-1][:2] in [(2001, "progress"), (2002, "progress")]
    assert job.progress().done == 1999
    assert worker.updates.commits <= 16, "written in batches"


def test_a_plain_job_costs_no_event_transaction(app, backend):
    @app.task
    async def plain(n: int) -> int:
        return n

    plain.enqueue_many([{"n": n} for n in range(50)])
    worker = burst(app)
    assert worker.attempts.ended == 50
    assert worker.updates.commits == 0
    assert backend.query("SELECT count(*) FROM leasehold.stream") == [(0,)]


def test_values_of_all_kinds_can_be_told(app):
    @dataclass
    class Page:
        url: str
        at: datetime

    @app.task
    async def notify(ctx: Context) -> None:
        ctx.emit("nothing")
        ctx.emit("plain", [1, "ü", None, {"a": 0.5}])
        ctx.emit("page", Page("x", datetime(2026, 1, 2, tzinfo=UTC)))

    job = notify.enqueue()
    burst(app)
    page = {"url": "x", "at": "2026-01-02T00:00:00Z"}
    assert [data for _, _, data in stored(job)] == [None, [1, "ü", None, {"a": 0.5}], page]


@pytest.mark.parametrize(
    ("notify", "error"),
    [
        (lambda ctx: ctx.emit("progress", 1), InvalidInput),
        (lambda ctx: ctx.emit("state", 1), InvalidInput),
        (lambda ctx: ctx.emit("", 1), InvalidInput),
        (lambda ctx: ctx.emit("x" * 201, 1), InvalidInput),
        (lambda ctx: ctx.emit("x", 1, key=""), InvalidInput),
        (lambda ctx: ctx.emit("x", float("nan")), NotSerializable),
        (lambda ctx: ctx.emit("x", {"a": "\x00"}), NotSerializable),
        (lambda ctx: ctx.emit("x", object()), NotSerializable),
        (lambda ctx: ctx.emit("x", "y" * 2_000_000), NotSerializable),
        (lambda ctx: ctx.emit("x", 1, key="\ud800"), NotSerializable),
        (lambda ctx: ctx.progress(float("inf")), InvalidInput),
        (lambda ctx: ctx.progress("1"), InvalidInput),
        (lambda ctx: ctx.progress(1, note="\x00"), NotSerializable),
    ],
)
def test_what_cannot_be_stored_is_refused_at_the_call(notify, error):
    with pytest.raises(error):
        notify(Context(HandlerState()))


def test_a_log_takes_everything(app):
    @app.task
    def notify(ctx: SyncContext) -> None:
        ctx.log("a\x00b\ud800c")

    job = notify.enqueue()
    burst(app)
    assert job.log().text.endswith(" a\N{REPLACEMENT CHARACTER}b?c\n")


# -- too much --------------------------------------------------------------------------------------------------------
def test_a_plain_handler_waits_when_too_much_is_told(app, door, monkeypatch):
    monkeypatch.setattr(state, "MOST_UPDATES", 20)
    reported, waited, done = [], [], threading.Event()

    @app.task
    def notify(ctx: SyncContext) -> None:
        door.shut()
        for n in range(60):
            ctx.emit("item", n)
            reported.append(n)
        done.set()

    job = notify.enqueue()

    async def work() -> None:
        async with app.worker(retention=None):
            await until(lambda: len(reported) >= 20)
            waited.append((not await asyncio.to_thread(done.wait, 0.3), len(reported)))
            await asyncio.to_thread(door.open)
            await until(lambda: job.refresh().state is State.SUCCEEDED)

    asyncio.run(work())
    assert waited == [(True, 20)]
    assert [data for _, _, data in stored(job)] == list(range(60))


def test_a_plain_handler_that_waits_to_tell_can_be_stopped(app, door, monkeypatch):
    monkeypatch.setattr(state, "MOST_UPDATES", 20)
    reported = []

    @app.task(timeout=1.0, retry=Retry(max_attempts=1))
    def notify(ctx: SyncContext) -> None:
        door.shut()
        try:
            for n in range(60):
                ctx.emit("item", n)
                reported.append(n)
        finally:
            door.open()

    job = notify.enqueue()
    burst(app)
    assert job.state is State.TIMED_OUT
    assert len(reported) == 20
    assert [data for _, _, data in stored(job)] == reported


def test_an_async_handler_that_tells_too_much_is_told_so_and_flush_helps(app, monkeypatch):
    monkeypatch.setattr(state, "MOST_UPDATES", 20)
    raised = []

    @app.task
    async def notify(ctx: Context) -> None:
        for n in range(100):
            try:
                ctx.emit("item", n)
            except StreamFull as error:
                raised.append(error)
                await ctx.flush()
                assert len(app.__internals__.store.read_stream(ctx.job_id).updates) == n
                ctx.emit("item", n)

    job = notify.enqueue()
    burst(app)
    assert [data for _, _, data in stored(job)] == list(range(100))
    assert raised
    assert "ctx.flush()" in str(raised[0])


def test_flush_in_a_plain_handler_returns_when_all_is_stored(app):
    seen = []

    @app.task
    def notify(ctx: SyncContext) -> None:
        ctx.flush()
        ctx.emit("item", 1)
        ctx.flush()
        seen.append(len(app.__internals__.store.read_stream(ctx.job_id).updates))

    notify.enqueue()
    burst(app)
    assert seen == [1]


# -- progress --------------------------------------------------------------------------------------------------------
def test_progress_is_written_at_most_twice_a_second_and_the_last_one_counts(app, backend):
    took = []

    @app.task
    def work(ctx: SyncContext) -> None:
        started = time.monotonic()
        for n in range(150):
            ctx.progress(n + 1, 150, f"step {n + 1}")
            ctx.wait(0.01)
        took.append(time.monotonic() - started)

    job = work.enqueue()
    burst(app)
    progress = job.progress()
    assert (progress.done, progress.total, progress.note) == (150, 150, "step 150")
    ((writes,),) = backend.query("SELECT last_seq FROM leasehold.stream")
    assert 2 <= writes <= took[0] / state.PROGRESS_EVERY + 2
    assert backend.query("SELECT count(*) FROM leasehold.job_update") == [(1,)]


def test_progress_that_comes_while_the_last_is_being_written_waits_its_turn():
    stream = state.RunStream(SimpleNamespace(id="j", token=1, attempt=1))
    stream.add("progress", "1", None, "")
    on_its_way = stream.take(upto=1, most=500)
    stream.add("progress", "2", None, "")
    written_at = time.monotonic()
    stream.wrote(on_its_way)
    assert [note.data for note in stream.notes] == ["2"]
    assert stream.due_at >= written_at + state.PROGRESS_EVERY


def test_progress_keeps_its_place_among_the_events(app):
    @app.task
    async def work(ctx: Context) -> None:
        ctx.progress(1)
        ctx.emit("a")
        ctx.progress(2)
        ctx.emit("b")

    job = work.enqueue()
    burst(app)
    assert [kind for _, kind, _ in stored(job)] == ["a", "progress", "b"]


def test_explain_tells_of_the_last_progress(app):
    go = threading.Event()

    @app.task
    def work(ctx: SyncContext) -> None:
        ctx.progress(3, 10, "page 3")
        ctx.flush()
        assert go.wait(20)

    job = work.enqueue()

    async def watch() -> None:
        async with app.worker(retention=None):
            await until(lambda: job.progress() is not None)
            text = await asyncio.to_thread(lambda: str(job.explain()))
            assert "; last progress " in text
            assert "ago (3 of 10: page 3)" in text
            go.set()

    asyncio.run(watch())


# -- logs ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def info() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield logging.getLogger("shop")
    root.setLevel(before)


def test_what_handlers_log_goes_to_their_own_jobs(app, info):
    @app.task
    async def on_loop(ctx: Context, n: int) -> None:
        info.info("loop %d begins", n)
        await asyncio.sleep(0.01)
        await asyncio.to_thread(info.warning, "loop %d ends", n)

    @app.task
    def in_thread(n: int) -> None:
        info.info("thread %d", n)
        info.debug("not asked for")

    jobs = {f"loop {n}": on_loop.enqueue(n) for n in range(5)}
    jobs |= {f"thread {n}": in_thread.enqueue(n) for n in range(5)}
    burst(app)
    info.info("nobody's")
    for name, job in jobs.items():
        lines = [line.split(" ", 2)[2] for line in job.log().text.splitlines()]
        wanted = [f"INFO shop: {name} begins", f"WARNING shop: {name} ends"]
        assert lines == (wanted if name.startswith("loop") else [f"INFO shop: {name}"])


def test_two_workers_in_one_process_keep_each_line_once(app, info):
    @app.task
    async def work(n: int) -> None:
        info.info("line of %d", n)

    jobs = [work.enqueue(n) for n in range(10)]

    async def both() -> None:
        await asyncio.gather(*(app.worker(burst=True, retention=None).run() for _ in range(2)))

    asyncio.run(both())
    assert [job.log().text.count("line of") for job in jobs] == [1] * 10


QUIET = """
import asyncio, logging, sys
from leasehold import Leasehold
app = Leasehold(sys.argv[1])

@app.task
def work() -> None:
    logging.getLogger("shop").warning("careful")
    logging.getLogger("shop").info("not asked for")

async def both() -> None:
    async with app.worker(retention=None), app.worker(retention=None):
        await work.enqueue().aresult(timeout=30)

asyncio.run(both())
"""


def test_warnings_of_a_program_that_sets_up_no_logging_still_reach_stderr_once(tmp_path):
    command = [sys.executable, "-c", QUIET, f"sqlite:///{tmp_path}/jobs.db"]
    reported = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert reported.stderr == "careful\n"


def test_a_worker_may_be_told_not_to_keep_logs(app, info):
    @app.task
    def work(ctx: SyncContext) -> None:
        info.info("hello")

    job = work.enqueue()
    burst(app, capture_logs=False)
    assert job.log().text == ""


def test_each_attempt_has_its_own_tail_which_is_cut_at_its_beginning(app):
    @app.task(retry=Retry(max_attempts=2, backoff=0))
    def work(ctx: SyncContext) -> None:
        for n in range(3000):
            ctx.log(f"{ctx.attempt} line {n:>40}")
        if ctx.attempt == 1:
            raise OSError("once more")

    job = work.enqueue()
    burst(app)
    for attempt in (1, 2):
        tail = job.log(attempt)
        assert len(tail.text) == 65_536
        line = len(f"2026-01-01 00:00:00.000+00:00 {attempt} line {0:>40}\n")
        assert tail.cut + len(tail.text) == 3000 * line
        assert tail.text.endswith(f" {attempt} line {2999:>40}\n")
    assert job.log().attempt == 2
    assert str(job.log()).startswith("(")
    assert job.log(7).text == ""


# -- watch -----------------------------------------------------------------------------------------------------------
def test_a_watcher_sees_everything_in_order_and_the_last_state_last(app):
    steps = [threading.Event() for _ in range(3)]

    @app.task(retry=Retry(max_attempts=2, backoff=0))
    def work(ctx: SyncContext) -> str:
        for n, step in enumerate(steps):
            if ctx.attempt == 2:
                assert step.wait(20)
            ctx.emit("item", n, key=f"{n}")
            if ctx.attempt == 1:
                raise OSError("once more")
        return "done"

    job = work.enqueue()
    seen = []

    async def watch() -> None:
        async for event in job.awatch(timeout=30):
            seen.append(event)
            if event.kind == "state" and event.data == {"state": "queued", "attempt": 0}:
                workers.append(asyncio.create_task(app.worker(burst=True, retention=None).run()))
            if event.kind == "state" and event.data["attempt"] == 2:
                steps[0].set()
                steps[1].set()
            if event.kind == "item" and event.data == 1:
                steps[2].set()

    workers: list[asyncio.Task[None]] = []
    asyncio.run(asyncio.wait_for(_both(watch(), workers), 60))
    items = [event for event in seen if event.kind == "item"]
    assert [(event.seq, event.data) for event in items] == [(1, 0), (2, 1), (3, 2)]
    assert [event.attempt for event in items] == [1, 2, 2]
    assert (seen[-1].kind, seen[-1].data) == ("state", {"state": "succeeded", "attempt": 2})
    assert [event.seq for event in seen] == sorted(event.seq for event in seen)
    states = [(event.data["state"], event.data["attempt"]) for event in seen if event.kind == "state"]
    assert len(states) == len(set(states)), "a state is told when it changes"
    # From wherever it goes on, it sees the rest and nothing else.
    for event in seen:
        rest = [other.seq for other in job.watch(since=event.seq, timeout=0) if other.kind != "state"]
        assert rest == [number for number in (1, 2, 3) if number > event.seq]


async def _both(watching, workers) -> None:
    await watching
    await asyncio.gather(*workers)


def test_a_watcher_reads_long_streams_page_by_page(app):
    @app.task
    def work(ctx: SyncContext) -> None:
        for n in range(1200):
            ctx.emit("item", n)

    job = work.enqueue()
    burst(app)
    seen = list(job.watch(timeout=0))
    assert [event.data for event in seen[:-1]] == list(range(1200))
    assert (seen[-1].kind, seen[-1].seq) == ("state", 1200)


def test_a_watch_ends_when_its_time_is_over(app):
    @app.task
    def work() -> None: ...

    job = work.enqueue()
    with pytest.raises(WaitTimedOut):
        list(job.watch(timeout=0.2))
    job.cancel()
    assert [event.data["state"] for event in job.watch(timeout=5)] == ["cancelled"]


# -- stall -----------------------------------------------------------------------------------------------------------
def test_a_silent_run_is_told_once_per_silence(app, caplog):
    reported: list[Notification] = []
    speak, end, too_often = threading.Event(), threading.Event(), threading.Event()

    @app.on("stalled")
    def fail(event: Notification) -> None:
        raise RuntimeError("a hook's own trouble")

    @app.on("stalled")
    def notify(event: Notification) -> None:
        reported.append(event)
        if len(reported) > 2:
            too_often.set()

    @app.task(stall_after=0.5)
    def work(ctx: SyncContext) -> str:
        assert speak.wait(20)
        ctx.log("still here")
        assert end.wait(20)
        return "done"

    job = work.enqueue()

    async def watch() -> None:
        async with app.worker(retention=None):
            await until(lambda: len(reported) == 1)
            speak.set()
            await until(lambda: len(reported) >= 2)
            assert not await asyncio.to_thread(too_often.wait, 4 * WATCH_EVERY), "the same silence again"
            end.set()

    asyncio.run(watch())
    assert job.result(timeout=5) == "done"
    assert [(event.name, event.job_id, event.task) for event in reported] == [("stalled", job.id, "work")] * 2
    assert [data for _, kind, data in stored(job) if kind == "stalled"] == [
        {"seconds": 0.5, "then": "report"}
    ] * 2
    entries = [entry for entry in job.history() if entry.event == "stalled"]
    assert [entry.detail for entry in entries] == ["no progress, update or log for 0.5 s"] * 2
    assert "a hook's own trouble" in caplog.text
    assert "is stalled" in caplog.text


def test_a_run_that_shows_signs_of_life_is_not_stalled(app):
    @app.task(stall_after=2, on_stall="stop")
    def work(ctx: SyncContext) -> str:
        tells = itertools.cycle([lambda: ctx.log("x"), lambda: ctx.progress(1), lambda: ctx.emit("x")])
        until = time.monotonic() + 2.8
        while time.monotonic() < until:
            next(tells)()
            ctx.wait(0.1)
        return "done"

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == "done"


def test_a_stalled_run_may_be_paused(app):
    @app.task(stall_after=0.3, on_stall="pause")
    async def work(ctx: Context) -> None:
        await asyncio.sleep(60)

    job = work.enqueue()
    burst(app)
    assert job.state is State.PAUSED
    assert job.reason == "stalled: no progress, update or log for 0.3 s"
    assert [event.event for event in job.history()] == ["stalled", "stopped"]


def test_a_stalled_run_may_be_stopped_and_tried_again(app):
    @app.task(stall_after=0.3, on_stall="stop", retry=Retry(max_attempts=2, backoff=0))
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return "done"

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == "done"
    assert (job.__row__.attempt, job.__row__.failures) == (2, 1)
    assert job.attempts()[0].error == "stalled: no progress, update or log for 0.3 s"


def test_hooks_are_checked_when_they_are_registered(app):
    with pytest.raises(InvalidInput, match="'stalled'"):
        app.on("halted")
    with pytest.raises(InvalidInput):
        app.on()
    with pytest.raises(InvalidInput, match="plain function"):

        @app.on("stalled")
        async def notify(event: Notification) -> None: ...

    with pytest.raises(InvalidInput, match="on_stall"):

        @app.task(on_stall="explode")
        def work() -> None: ...

    with pytest.raises(InvalidInput, match="stall_after"):

        @app.task(stall_after=0)
        def more() -> None: ...
