"""A handler that keeps others from going on is noticed and named: it blocks the loop, or waits in its place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from leasehold import Retry, State
from leasehold.errors import WaitTimedOut
from leasehold.run import handler_state
from leasehold.worker import watchdog
from tests.workers import PATIENCE, burst

ONCE = Retry(max_attempts=1)


class Told(logging.Handler):
    """Lets a handler go on as soon as a line with this text was logged."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.records: list[logging.LogRecord] = []
        self._event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.records.append(record)
            self._event.set()

    def wait(self) -> None:
        assert self._event.wait(PATIENCE), f"nobody has said {self._text!r}"

    @property
    def text(self) -> str:
        (record,) = self.records
        return record.getMessage()


@pytest.fixture
def told() -> Iterator[Callable[[str], Told]]:
    logger = logging.getLogger("leasehold")
    level, made = logger.level, []
    logger.setLevel(logging.INFO)

    def listen(text: str) -> Told:
        made.append(Told(text))
        logger.addHandler(made[-1])
        return made[-1]

    yield listen
    for handler in made:
        logger.removeHandler(handler)
    logger.setLevel(level)


# -- the loop ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "CHECK_LOOP_EVERY", 0.2)
    monkeypatch.setattr(watchdog, "BLOCKED_AFTER", 0.5)


@pytest.mark.one_store("sqlite")
def test_a_handler_that_blocks_the_loop_is_named_with_its_place(app, told, soon):
    blocked, over = told("blocks the event loop"), told("the event loop turns again")

    def library() -> None:
        blocked.wait()

    @app.task(name="blocking", retry=ONCE)
    async def blocking() -> None:
        library()
        await asyncio.to_thread(over.wait)

    job = blocking.enqueue()
    burst(app)
    assert job.refresh().state is State.SUCCEEDED, job.error
    (record,) = blocked.records
    assert record.levelno == logging.WARNING
    assert f"job {job.id} (blocking): blocks the event loop" in blocked.text
    assert f"blocking, {__file__}:" in blocked.text
    assert "asyncio.to_thread" in blocked.text
    assert len(over.records) == 1


@pytest.mark.one_store("sqlite")
def test_a_task_of_a_handler_that_blocks_the_loop_is_named_with_its_job(app, told, soon):
    blocked = told("blocks the event loop")

    @app.task(name="blocking", retry=ONCE)
    async def blocking() -> None:
        async def inner() -> None:
            blocked.wait()

        await asyncio.create_task(inner())

    job = blocking.enqueue()
    burst(app)
    assert job.refresh().state is State.SUCCEEDED, job.error
    assert f"job {job.id} (blocking): blocks the event loop" in blocked.text


@pytest.mark.one_store("sqlite")
def test_a_program_that_blocks_the_loop_of_its_worker_is_told_where(app, told, soon):
    blocked = told("blocks the event loop")

    @app.task
    async def quick() -> None: ...

    async def program() -> None:
        async with app.worker():
            await asyncio.sleep(0)
            blocked.wait()

    asyncio.run(program())
    assert blocked.text.startswith("code outside of the running jobs blocks the event loop")
    assert f"{__file__}:" in blocked.text


# -- waits for other jobs ----------------------------------------------------------------------------------------------


@pytest.fixture
def never_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_state, "_warned", set())


@pytest.mark.parametrize("how", ["result", "watch", "group"])
def test_a_plain_handler_that_waits_for_a_job_in_its_place_is_told_the_remedy(app, told, never_warned, how):
    waits = told("keeps its place")

    @app.task
    def child() -> None: ...

    @app.task(name="parent", retry=ONCE)
    def parent() -> None:
        job = child.using(group="g").enqueue()
        for _ in range(2):
            with contextlib.suppress(WaitTimedOut):
                if how == "result":
                    job.result(timeout=0.05)
                elif how == "watch":
                    list(job.watch(timeout=0.2))
                else:
                    app.group("g").status(wait=0.05, since=app.group("g").status().version)

    job = parent.enqueue()
    burst(app, threads=1)
    assert job.refresh().state is State.SUCCEEDED, job.error
    assert waits.text.startswith(f"job {job.id}: parent waits for ")
    assert "after=" in waits.text
    assert "ctx.enqueue" in waits.text


@pytest.mark.parametrize("how", ["result", "watch"])
def test_an_async_handler_may_not_block_its_loop_by_waiting_for_a_job(app, how):
    @app.task
    async def child() -> None: ...

    @app.task(retry=Retry(max_attempts=3, backoff=0))
    async def parent() -> None:
        job = child.enqueue()
        if how == "result":
            job.result(timeout=PATIENCE)
        else:
            list(job.watch(timeout=PATIENCE))

    job = parent.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.FAILED, 1)
    assert "would block the event loop of this worker" in job.error
    assert "await job.aresult()" in job.error


def test_an_async_handler_may_await_a_job_and_read_one_that_has_ended(app):
    @app.task
    async def child() -> int:
        return 7

    @app.task(retry=ONCE)
    async def parent() -> int:
        job = child.enqueue()
        return await job.aresult(timeout=PATIENCE) + job.result(timeout=PATIENCE)

    job = parent.enqueue()
    burst(app)
    assert job.result(timeout=0) == 14
