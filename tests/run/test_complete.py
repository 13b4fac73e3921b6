"""`ctx.complete` and steps with `tx=True`, on both stores, in a worker inside this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leasehold import Context, Retry, State, SyncContext
from leasehold.errors import DatabaseUnreachable, InvalidInput, TransactionTooLong
from leasehold.operations import jobs
from leasehold.run import steps
from leasehold.stores.results import Ending
from leasehold.worker.lease_keeper import LeaseKeeper
from tests.backends import Backend
from tests.workers import burst, until


class Effects:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        sqlite = backend.name == "sqlite"
        table = "leasehold_effect" if sqlite else f'"{backend.schema}".effect'
        self.insert = f"INSERT INTO {table} VALUES ({'?' if sqlite else '%s'})"
        self.select = f"SELECT n FROM {table}"

    def write(self, connection, n: int) -> int:
        connection.execute(self.insert, (n,))
        return n

    def seen(self) -> list[int]:
        return sorted(n for (n,) in self._backend.query("SELECT n FROM leasehold.effect"))


@pytest.fixture
def effects(backend: Backend) -> Iterator[Effects]:
    backend.query("DROP TABLE IF EXISTS leasehold.effect")
    backend.query("CREATE TABLE leasehold.effect (n integer)")
    yield Effects(backend)
    backend.query("DROP TABLE leasehold.effect")


def test_the_writes_of_an_async_block_commit_with_the_success(app, effects):
    @app.task(lane="l")
    async def work(ctx: Context) -> dict[str, int]:
        async with ctx.complete({"n": 1}) as tx:
            await tx.execute(effects.insert, [1])
            assert await tx.run(effects.write, 2) == 2
            assert await tx.execute(effects.select) == [(1,), (2,)]
            assert effects.seen() == []
        assert effects.seen() == [1, 2]
        return {"n": 2}

    @app.task(lane="l")
    async def behind_it() -> str:
        return "the lane goes on"

    job, behind = work.enqueue(), behind_it.enqueue()
    worker = burst(app)
    assert job.result(timeout=0) == {"n": 1}
    assert (job.__row__.attempt, job.__row__.lease_token) == (1, 1)
    assert behind.result(timeout=0) == "the lane goes on"
    assert (
        worker.attempts.ended,
        worker.attempts.fenced,
        worker.attempts.lost,
        len(worker.attempts.held),
    ) == (2, 0, 0, 0)


def test_the_writes_of_a_plain_block_commit_with_the_success(app, effects):
    @app.task
    def work(ctx: SyncContext) -> int:
        with ctx.complete(7) as tx:
            tx.execute(effects.insert, [1])
            tx.connection.execute(effects.insert, (2,))
            assert tx.execute(effects.select) == [(1,), (2,)]
        return 8

    job = work.enqueue()
    worker = burst(app)
    assert (job.result(timeout=0), effects.seen()) == (7, [1, 2])
    assert (
        worker.attempts.ended,
        worker.attempts.fenced,
        worker.attempts.lost,
        len(worker.attempts.held),
    ) == (1, 0, 0, 0)


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_an_exception_in_the_block_undoes_it_and_fails_the_run(app, effects, colour):
    if colour == "async":

        @app.task(name="work", retry=Retry(backoff=0))
        async def work(ctx: Context) -> int:
            async with ctx.complete(ctx.attempt) as tx:
                await tx.execute(effects.insert, [ctx.attempt])
                if ctx.attempt < 3:
                    raise ConnectionError("no")
    else:

        @app.task(name="work", retry=Retry(backoff=0))
        def work(ctx: SyncContext) -> int:
            with ctx.complete(ctx.attempt) as tx:
                tx.execute(effects.insert, [ctx.attempt])
                if ctx.attempt < 3:
                    raise ConnectionError("no")

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), job.__row__.failures, effects.seen()) == (3, 2, [3])


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_what_comes_after_the_block_changes_nothing(app, effects, colour):
    refused = []

    if colour == "async":

        @app.task(name="work")
        async def work(ctx: Context) -> int:
            async with ctx.complete(1):
                pass
            for late in (lambda: ctx.step("s", int), lambda: ctx.checkpoint(1), lambda: enter(ctx)):
                try:
                    await late()
                except InvalidInput as error:
                    refused.append(error.field)
            raise ValueError("too late")
    else:

        @app.task(name="work")
        def work(ctx: SyncContext) -> int:
            with ctx.complete(1):
                pass
            for late in (
                lambda: ctx.step("s", int),
                lambda: ctx.checkpoint(1),
                lambda: ctx.complete(2).__enter__(),
            ):
                try:
                    late()
                except InvalidInput as error:
                    refused.append(error.field)
            raise ValueError("too late")

    async def enter(ctx: Context) -> None:
        async with ctx.complete(2):
            pass

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), job.__row__.attempt) == (1, 1)
    assert refused == ["step", "checkpoint", "complete"]


def test_a_result_that_cannot_be_stored_is_refused_before_the_block_runs(app, effects):
    @app.task(retry=Retry(backoff=0))
    async def work(ctx: Context) -> float:
        async with ctx.complete(float("nan")) as tx:
            await tx.execute(effects.insert, [1])

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.__row__.attempt, effects.seen()) == (State.FAILED, 1, [])
    assert "the result is not serializable" in job.error


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_block_that_takes_too_long_is_undone_with_a_clear_error(app, effects, colour, monkeypatch):
    monkeypatch.setattr(steps, "TRANSACTION_SECONDS", 0.3)
    late = threading.Event()

    if colour == "async":

        @app.task(name="work", retry=Retry(max_attempts=1))
        async def work(ctx: Context) -> None:
            async with ctx.complete() as tx:
                await tx.execute(effects.insert, [1])
                await asyncio.sleep(0.6)
    else:

        @app.task(name="work", retry=Retry(max_attempts=1))
        def work(ctx: SyncContext) -> None:
            with ctx.complete() as tx:
                tx.execute(effects.insert, [1])
                late.wait(0.6)

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, effects.seen()) == (State.FAILED, [])
    assert TransactionTooLong.__name__ in job.error
    assert "took more than 0.3 s and was rolled back; do the slow work before it" in job.error


def test_a_block_whose_run_is_stopped_is_undone(app, effects):
    begun = threading.Event()

    @app.task(on_drain="pause")
    async def work(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.execute(effects.insert, [1])
            begun.set()
            await asyncio.sleep(3600)

    async def main() -> None:
        async with app.worker(retention=None) as worker:
            job = await work.aenqueue()
            await until(begun.is_set)
            worker.attempts.stop(worker.attempts.held[job.id], "drain")
            await until(lambda: job.refresh().state is State.PAUSED)

    asyncio.run(main())
    assert effects.seen() == []


def test_a_handler_that_outlives_its_worker_ends_instead_of_waiting_for_ever(app, effects):
    begun = threading.Event()
    ends = []

    @app.task(on_drain="pause")
    async def work(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            try:
                await asyncio.sleep(3600)  # it ignores its stop; the end of the loop is the second one
            finally:
                try:
                    await ctx.step("late", effects.seen)
                except BaseException as error:
                    ends.append(type(error).__name__)

    async def main() -> None:
        async with app.worker(retention=None, shutdown_grace=0.0, stop_grace=0.2):
            await work.aenqueue()
            await until(begun.is_set)

    asyncio.run(main())
    assert ends == ["StopRequested"]


def test_success_wins_over_a_pause_that_came_before_it(app, effects, monkeypatch):
    """The handler has not heard of it yet: what it has done counts."""
    monkeypatch.setattr(LeaseKeeper, "expect_stop_request", lambda keeper: None)

    @app.task
    async def work(ctx: Context) -> str:
        await asyncio.to_thread(app.__internals__.operations.call, jobs.pause, ctx.job_id)
        async with ctx.complete("done") as tx:
            await tx.execute(effects.insert, [1])
        return ""

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), effects.seen()) == ("done", [1])


def test_a_batch_of_steps_goes_with_the_block(app, effects, backend):
    @app.task
    def work(ctx: SyncContext) -> None:
        ctx.step("cheap", int, durable="batch")
        with ctx.complete():
            pass

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) is None
    assert backend.query("SELECT name FROM leasehold.step") == [("cheap",)]


# --- a commit that is not answered ----------------------------------------------------------------------------------


@pytest.fixture
def late_commit(app, monkeypatch) -> list[str]:
    """The first commit of a block is not answered, and lands after the first look at its row; what looks were told."""
    transaction, read = app.__internals__.store.transaction, app.__internals__.store.read_settlements
    on_its_way: list[Ending] = []
    verdicts: list[str] = []

    @contextmanager
    def unanswered(job_id, token, seconds):
        with transaction(job_id, token, seconds) as tx:
            if verdicts:
                yield tx
                return
            monkeypatch.setattr(
                tx, "succeed", lambda outcome: on_its_way.append(Ending(job_id, token, outcome))
            )
            yield tx
            raise DatabaseUnreachable("the store", "no answer")

    def look(leases, worker):
        found = read(leases, worker)
        verdicts.extend(found.values())
        if on_its_way:
            app.__internals__.store.settle(on_its_way)
            on_its_way.clear()
        return found

    monkeypatch.setattr(app.__internals__.store, "transaction", unanswered)
    monkeypatch.setattr(app.__internals__.store, "read_settlements", look)
    return verdicts


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_block_whose_commit_lands_after_the_look_counts_whatever_its_run_ends_as(app, late_commit, colour):
    if colour == "async":

        @app.task(name="work", retry=Retry(backoff=0))
        async def work(ctx: Context) -> int:
            async with ctx.complete(ctx.attempt):
                pass
    else:

        @app.task(name="work", retry=Retry(backoff=0))
        def work(ctx: SyncContext) -> int:
            with ctx.complete(ctx.attempt):
                pass

    job = work.enqueue()
    worker = burst(app)
    assert late_commit == ["mine", "done"]
    assert job.result(timeout=0) == job.__row__.attempt == 1
    assert (worker.attempts.ended, worker.attempts.fenced, worker.attempts.lost) == (1, 0, 0)


def test_a_block_that_is_tried_again_finds_that_its_first_commit_has_landed(app, late_commit):
    @app.task
    def work(ctx: SyncContext) -> str:
        try:
            with ctx.complete("first"):
                pass
        except DatabaseUnreachable:
            with ctx.complete("second"):
                pass
        return "ignored"

    job = work.enqueue()
    worker = burst(app)
    assert late_commit == ["mine", "done"]
    assert job.result(timeout=0) == "first"
    assert (worker.attempts.ended, worker.attempts.fenced, worker.attempts.lost) == (1, 0, 0)


# --- steps that commit with their effect ----------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_step_with_tx_commits_its_writes_and_is_not_run_again(app, effects, colour):
    if colour == "async":

        @app.task(name="work", retry=Retry(backoff=0))
        async def work(ctx: Context) -> list[int]:
            numbers = [await ctx.step(f"s {n}", effects.write, n, tx=True) for n in range(3)]
            if ctx.attempt == 1:
                raise ConnectionError
            return numbers
    else:

        @app.task(name="work", retry=Retry(backoff=0))
        def work(ctx: SyncContext) -> list[int]:
            numbers = [ctx.step(f"s {n}", effects.write, n, tx=True) for n in range(3)]
            if ctx.attempt == 1:
                raise ConnectionError
            return numbers

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), job.__row__.attempt) == ([0, 1, 2], 2)
    assert effects.seen() == [0, 1, 2]


def test_a_step_with_tx_that_fails_leaves_nothing_and_may_be_tried_again(app, effects):
    tries = []

    def fickle(connection) -> int:
        tries.append(1)
        effects.write(connection, len(tries))
        if len(tries) < 3:
            raise TimeoutError
        return len(tries)

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step("s", fickle, tx=True, retry=Retry(backoff=0))

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), job.__row__.attempt, effects.seen()) == (3, 1, [3])


def test_several_transactions_of_one_run_follow_each_other(app, effects):
    @app.task
    async def work(ctx: Context) -> list[int]:
        many = [ctx.step(f"s {n}", effects.write, n, tx=True) for n in range(12)]
        return await asyncio.gather(*many)

    job = work.enqueue()
    burst(app, concurrency=4)
    assert job.result(timeout=0) == effects.seen() == list(range(12))
