"""Budgets in a worker inside this process, on both stores: what is spent is recorded, once, and what is too much ends
the run as its task says."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from leasehold import Context, Fail, Leasehold, Pause, Retry, State, StopRequested, SyncContext
from leasehold.domain.errors import DatabaseUnreachable
from leasehold.errors import InvalidInput, InvalidState, InvalidTask, OverBudget
from leasehold.operations import budgets
from leasehold.types import BudgetLine
from tests.workers import burst, until


def ledger(job) -> dict[tuple[str, str], int]:
    return {(row.key, row.unit): row.amount for row in job.spending()}


def spent(job, unit: str = "tokens") -> int:
    """The total, which the ledger's rows must bear out."""
    total = next((line.spent for line in job.budget() if (line.scope, line.unit) == ("job", unit)), 0)
    assert total == sum(row.amount for row in job.spending() if row.unit == unit)
    return total


def test_a_spend_is_recorded_with_its_lease_and_told_by_left_and_spent(app):
    seen = []

    @app.task(budget={"tokens": 100, "pages": 5})
    async def work(ctx: Context) -> None:
        seen.append((ctx.left("tokens"), ctx.spent("tokens"), ctx.left("pages"), ctx.left("money")))
        await ctx.spend(tokens=30, pages=2, key="call-1")
        await ctx.spend(tokens=30, money=7)
        seen.append((ctx.left("tokens"), ctx.spent("tokens"), ctx.left("pages"), ctx.left("money")))
        await ctx.spend(tokens=30, pages=2, key="call-1")
        seen.append(ctx.spent("tokens"))

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.SUCCEEDED
    assert seen == [(100, 0, 5, None), (40, 60, 3, None), 60]
    assert [(row.token, row.attempt) for row in job.spending()] == [(1, 1)] * 4
    assert spent(job) == 60
    assert job.budget() == [
        BudgetLine("job", job.id, "money", None, 7),
        BudgetLine("job", job.id, "pages", 5, 2),
        BudgetLine("job", job.id, "tokens", 100, 60),
    ]


def test_a_plain_handler_spends_in_its_thread(app):
    @app.task(budget={"tokens": 100})
    def work(ctx: SyncContext) -> list[int | None]:
        before = ctx.left("tokens")
        ctx.spend(tokens=25)
        return [before, ctx.left("tokens"), ctx.spent("tokens")]

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == [100, 75, 25]


@pytest.mark.parametrize(("on_breach", "state"), [("fail", State.FAILED), ("pause", State.PAUSED)])
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_over_budget_the_run_ends_as_its_task_says_and_is_not_retried(app, colour, on_breach, state):
    settings = {"name": "work", "budget": {"tokens": 100}, "on_breach": on_breach, "retry": Retry(backoff=0)}
    if colour == "async":

        @app.task(**settings)
        async def work(ctx: Context) -> None:
            await ctx.spend(tokens=100)  # equal is not over
            await ctx.spend(tokens=1)
            raise AssertionError("it was told to stop")
    else:

        @app.task(**settings)
        def work(ctx: SyncContext) -> None:
            ctx.spend(tokens=100)
            ctx.spend(tokens=1)
            raise AssertionError("it was told to stop")

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is state
    assert (job.__row__.attempt, job.__row__.failures) == (1, 0)
    assert "over budget: 101 tokens are spent, its budget is 100" in job.error
    assert "top_up" in job.error
    assert spent(job) == 101
    assert [entry.event for entry in job.history()] == ["breached"]


def test_a_capped_job_is_not_stopped_and_looks_at_what_is_left(app):
    @app.task(budget={"pages": 3}, on_breach="allow")
    async def fetch(ctx: Context) -> int:
        pages = 0
        while ctx.left("pages"):
            pages += 1
            await ctx.spend(pages=1)
        await ctx.spend(pages=5)
        assert ctx.left("pages") == 0
        return pages

    job = fetch.enqueue()
    burst(app)
    assert job.result(timeout=0) == 3
    assert spent(job, "pages") == 8


def test_a_handler_that_catches_the_breach_and_returns_has_succeeded(app):
    @app.task(budget={"tokens": 10})
    async def work(ctx: Context) -> str:
        try:
            await ctx.spend(tokens=11)
        except OverBudget as over:
            return f"{over.scope} {over.unit} {over.spent}/{over.limit}"
        return "?"

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == "job tokens 11/10"


def test_a_breached_job_is_resumed_only_after_a_top_up_and_its_ledger_goes_on(app):
    @app.task(budget={"tokens": 100}, on_breach="pause")
    async def work(ctx: Context) -> int | None:
        for n in range(3):
            await ctx.spend(tokens=50, key=f"call-{n}")
        return ctx.left("tokens")

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.PAUSED
    with pytest.raises(InvalidState, match="150 of its 100 tokens are spent; raise it first: top_up"):
        job.resume()
    assert job.refresh().state is State.PAUSED
    job.top_up(tokens=49, actor="ann")
    with pytest.raises(InvalidState, match="more than 1"):
        job.resume(fresh=True)
    job.top_up(tokens=1, actor="ann")
    job.resume(fresh=True)
    burst(app)
    assert job.result(timeout=0) == 0
    assert ledger(job) == {(f"call-{n}", "tokens"): 50 for n in range(3)}
    reported = [(e.event, e.actor, e.detail) for e in job.history() if e.event == "topped_up"]
    assert reported == [("topped_up", "ann", "tokens +49 to 149"), ("topped_up", "ann", "tokens +1 to 150")]


def test_a_top_up_names_a_unit_that_has_a_limit_and_a_job_that_still_spends(app):
    @app.task(budget={"tokens": 10})
    def work() -> None: ...

    job = work.enqueue()
    with pytest.raises(InvalidInput, match="no limit for it; units with a limit: tokens"):
        job.top_up(pages=1)
    assert [line.limit for line in job.top_up(tokens=5)] == [15]
    burst(app)
    with pytest.raises(InvalidState, match="spends nothing any more"):
        job.top_up(tokens=1)


@pytest.mark.parametrize("amount", [1.5, True, "7", -1, 10**16])
def test_amounts_are_whole_numbers_and_nothing_else_is_taken(app, amount):
    with pytest.raises(InvalidInput, match="tokens"):
        app.task(name="wrong", budget={"tokens": amount})(lambda: None)

    @app.task(budget={"tokens": 10})
    async def work(ctx: Context) -> None:
        await ctx.spend(tokens=amount)

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert job.spending() == []


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_budget_for_each_attempt_begins_anew_with_each(app, colour):
    seen = []
    settings = {
        "name": "work",
        "budget": {"tokens": 100},
        "budget_for": "attempt",
        "on_breach": "pause",
        "retry": Retry(backoff=0),
    }
    if colour == "async":

        @app.task(**settings)
        async def work(ctx: Context) -> None:
            seen.append((ctx.left("tokens"), ctx.spent("tokens")))
            await ctx.spend(tokens=80)
            seen.append((ctx.left("tokens"), ctx.spent("tokens")))
            if ctx.attempt == 1:
                raise ConnectionError
            await ctx.spend(tokens=30)
    else:

        @app.task(**settings)
        def work(ctx: SyncContext) -> None:
            seen.append((ctx.left("tokens"), ctx.spent("tokens")))
            ctx.spend(tokens=80)
            seen.append((ctx.left("tokens"), ctx.spent("tokens")))
            if ctx.attempt == 1:
                raise ConnectionError
            ctx.spend(tokens=30)

    job = work.enqueue()
    burst(app)
    assert seen == [(100, 0), (20, 80)] * 2
    assert (job.refresh().state, job.attempt) == (State.PAUSED, 2)
    assert "110 tokens are spent, the budget of an attempt is 100; the next attempt begins at 0" in job.error
    assert job.budget() == [BudgetLine("attempt", job.id, "tokens", 100, 110)]
    assert sum(row.amount for row in job.spending()) == 190
    assert [hold.cause for hold in job.explain()] == ["resting"]
    assert job.resume().state is State.QUEUED
    burst(app)
    assert seen[4:] == [(100, 0), (20, 80)]


def test_whom_a_budget_is_for_is_one_of_two(app):
    with pytest.raises(InvalidTask, match="budget_for: 'run' is not known; use 'job' or 'attempt'"):
        app.task(name="wrong", budget={"tokens": 1}, budget_for="run")(lambda: None)


def test_a_call_may_bring_its_own_budget(app):
    @app.task(budget={"tokens": 10})
    async def work(ctx: Context) -> int | None:
        return ctx.left("tokens")

    jobs = [work.enqueue(), work.using(budget={"tokens": 99}, on_breach="allow").enqueue()]
    burst(app)
    assert [job.result(timeout=0) for job in jobs] == [10, 99]
    assert jobs[1].__row__.policy.on_breach == "allow"


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_group_has_a_budget_of_its_own_and_the_smaller_rest_counts(app):
    app.__internals__.operations.call(budgets.set_group_budget, "g", {"tokens": 100})

    @app.task(budget={"tokens": 80})
    async def work(ctx: Context) -> int | None:
        await ctx.spend(tokens=60)
        return ctx.left("tokens")

    first, second = work.using(group="g").enqueue(), work.using(group="g", priority=-1).enqueue()
    burst(app, concurrency=1)
    assert first.result(timeout=0) == 20
    assert second.refresh().state is State.FAILED
    assert "the budget of group 'g' is 100" in second.error
    assert app.__internals__.operations.call(budgets.group_budget, "g") == [
        BudgetLine("group", "g", "tokens", 100, 120)
    ]
    with pytest.raises(InvalidState, match="raise the limit of group 'g' first"):
        second.resume()
    app.__internals__.operations.call(budgets.set_group_budget, "g", {"tokens": None})
    assert second.resume().state is State.QUEUED


def test_spends_in_steps_of_several_jobs_meet_in_the_budget_of_their_group(app):
    app.__internals__.operations.call(budgets.set_group_budget, "g", {"tokens": 100})

    @app.task
    async def work(ctx: Context) -> int:
        async def call(n: int) -> int:
            await ctx.spend(tokens=10)
            return n

        for n in range(100):
            await ctx.step(f"call {n}", call, n)
        return n

    jobs = [work.using(group="g").enqueue() for _ in range(3)]
    burst(app)
    assert [job.refresh().state for job in jobs] == [State.FAILED] * 3
    (line,) = app.__internals__.operations.call(budgets.group_budget, "g")
    # A run learns what the others have spent when its own step is committed: each may be ahead by a step.
    assert 100 < line.spent <= 100 + 3 * 2 * 10
    assert line.spent == sum(spent(job) for job in jobs)


# --- steps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", ["each", "batch"])
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_what_a_step_spends_is_counted_once_however_often_its_job_runs(app, colour, durable):
    if colour == "async":

        @app.task(name="work", retry=Retry(backoff=0), budget={"tokens": 30})
        async def work(ctx: Context) -> int | None:
            async def call(n: int) -> int:
                await ctx.spend(tokens=10)
                return n

            for n in range(3):
                await ctx.step(f"call {n}", call, n, durable=durable)
            if ctx.attempt < 3:
                raise ConnectionError
            return ctx.left("tokens")
    else:

        @app.task(name="work", retry=Retry(backoff=0), budget={"tokens": 30})
        def work(ctx: SyncContext) -> int | None:
            def call(n: int) -> int:
                ctx.spend(tokens=10)
                return n

            for n in range(3):
                ctx.step(f"call {n}", call, n, durable=durable)
            if ctx.attempt < 3:
                raise ConnectionError
            return ctx.left("tokens")

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == 0
    assert job.__row__.attempt == 3
    assert spent(job) == 30
    assert {row.attempt for row in job.spending()} == {1}


def test_a_spend_in_a_step_is_kept_until_the_step_is_and_counts_at_once(app, backend):
    seen = []

    @app.task(budget={"tokens": 100})
    async def work(ctx: Context) -> None:
        async def call() -> None:
            await ctx.spend(tokens=60)
            rows = await asyncio.to_thread(backend.query, "SELECT count(*) FROM leasehold.spending")
            seen.append((rows[0][0], ctx.left("tokens"), ctx.spent("tokens")))

        await ctx.step("call", call)
        rows = await asyncio.to_thread(backend.query, "SELECT count(*) FROM leasehold.spending")
        seen.append((rows[0][0], ctx.left("tokens"), ctx.spent("tokens")))

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.SUCCEEDED
    assert seen == [(0, 40, 60), (1, 40, 60)]


def test_a_step_that_fails_has_spent_all_the_same(app):
    @app.task(retry=Retry(backoff=0, max_attempts=2), budget={"tokens": 100})
    async def work(ctx: Context) -> None:
        async def call() -> None:
            await ctx.spend(tokens=10)
            raise ConnectionError

        await ctx.step("call", call, retry=Retry(max_attempts=3, backoff=0))

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert spent(job) == 2 * 3 * 10


def test_a_key_in_a_step_that_is_run_again_counts_once(app):
    @app.task(retry=Retry(backoff=0), budget={"tokens": 100})
    async def work(ctx: Context) -> int | None:
        async def call() -> None:
            await ctx.spend(tokens=60, key="the call")
            if ctx.attempt < 3:
                raise ConnectionError

        await ctx.step("call", call)
        return ctx.left("tokens")

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == 40
    assert ledger(job) == {("the call", "tokens"): 60}


def test_over_budget_in_a_step_the_step_is_not_tried_again(app):
    tries = []

    @app.task(budget={"tokens": 10})
    def work(ctx: SyncContext) -> None:
        def call() -> None:
            tries.append(1)
            ctx.spend(tokens=11)

        ctx.step("call", call, retry=Retry(max_attempts=5, backoff=0))

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert (tries, spent(job)) == ([1], 11)


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_spend_in_a_step_with_a_transaction_is_committed_with_it_or_by_itself(app, backend, ends):
    @app.task(budget={"tokens": 100})
    def work(ctx: SyncContext) -> int | None:
        def call(connection: object) -> None:
            ctx.spend(tokens=10)
            if ends == "badly":
                raise Fail("no")

        ctx.step("call", call, tx=True)
        return ctx.left("tokens")

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is (State.SUCCEEDED if ends == "well" else State.FAILED)
    assert spent(job) == 10
    steps = backend.query("SELECT name FROM leasehold.step WHERE job_id = ?", job.id)
    assert len(steps) == (1 if ends == "well" else 0)


@pytest.mark.parametrize("ends", ["well", "badly"])
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_spend_in_the_last_act_is_committed_with_it_or_by_itself(app, colour, ends):
    if colour == "async":

        @app.task(name="work", budget={"tokens": 100})
        async def work(ctx: Context) -> str:
            async with ctx.complete("done"):
                await ctx.spend(tokens=10)
                if ends == "badly":
                    raise Fail("no")
            return "ignored"
    else:

        @app.task(name="work", budget={"tokens": 100})
        def work(ctx: SyncContext) -> str:
            with ctx.complete("done"):
                ctx.spend(tokens=10)
                if ends == "badly":
                    raise Fail("no")
            return "ignored"

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is (State.SUCCEEDED if ends == "well" else State.FAILED)
    assert spent(job) == 10


# --- trouble --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["alone", "in a step"])
def test_what_a_run_spends_after_its_lease_was_lost_is_recorded_with_its_token(app, backend, where):
    """The row is taken from under the run, as a reaper would."""

    @app.task(budget={"tokens": 100})
    async def work(ctx: Context) -> None:
        async def call() -> int:
            if ctx.attempt == 1:
                seq = "(SELECT seq FROM leasehold.job WHERE id = ?)"
                take = f"UPDATE leasehold.lease SET token = token + 1 WHERE job = {seq}"
                await asyncio.to_thread(backend.query, take, ctx.job_id)
            await ctx.spend(tokens=10, key=f"call-{ctx.attempt}")
            return 1

        if where == "alone":
            await call()
        else:
            await ctx.step("call", call)

    job = work.enqueue()
    worker = burst(app)
    assert worker.attempts.ended == 0
    (row,) = job.spending()
    assert (row.key, row.token, row.amount, spent(job)) == ("call-1", 1, 10, 10)
    assert backend.query("SELECT count(*) FROM leasehold.step") == [(0,)]


@pytest.mark.parametrize("before", [True, False])
def test_a_spend_is_repeated_while_the_database_is_away_and_counted_once(app, monkeypatch, before):
    """The call fails before it reaches the database, or the answer is lost after it has."""
    real, failures = app.__internals__.store.spend, [1, 1, 1]

    def flaky(*args):
        if before and failures:
            failures.pop()
            raise DatabaseUnreachable("test", "cut")
        answer = real(*args)
        if failures:
            failures.pop()
            raise DatabaseUnreachable("test", "cut")
        return answer

    monkeypatch.setattr(app.__internals__.store, "spend", flaky)

    @app.task(budget={"tokens": 100})
    async def work(ctx: Context) -> int | None:
        await ctx.spend(tokens=10)
        return ctx.left("tokens")

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), failures) == (90, [])
    assert spent(job) == 10


# --- interrupted while over the limit -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "on_breach", "state"),
    [
        (100, "fail", State.PAUSED),  # equal is still paused
        (101, "fail", State.FAILED),
        (101, "pause", State.PAUSED),
        (101, "allow", State.PAUSED),
    ],
)
@pytest.mark.parametrize("by", ["pause", "drain"])
def test_interrupted_by_a_pause_while_over_its_limit_a_job_fails_if_its_task_says_so(
    app, by, amount, on_breach, state
):
    @app.task(budget={"tokens": 100}, on_breach=on_breach, on_drain="pause", heartbeat=0.05)
    async def work(ctx: Context) -> None:
        with contextlib.suppress(OverBudget):  # it would like to go on
            await ctx.spend(tokens=amount)
        ctx.emit("spent")
        await asyncio.sleep(60)

    job = work.enqueue()

    async def interrupt() -> None:
        async with app.worker(retention=None, shutdown_grace=0) as worker:
            await until(
                lambda: any(
                    event.kind == "spent" for event in app.__internals__.store.read_stream(job.id).updates
                )
            )
            if by == "pause":
                await asyncio.to_thread(job.pause)
                await until(lambda: job.refresh().state is not State.RUNNING)
            else:
                worker.request_drain()

    asyncio.run(interrupt())
    assert job.refresh().state is state
    assert job.__row__.attempt == 1
    if state is State.FAILED:
        assert job.error.startswith("interrupted while over budget: 101 tokens are spent, its budget is 100")


def test_a_handler_that_asks_for_its_pause_itself_is_paused_over_its_limit_too(app):
    @app.task(budget={"tokens": 100})
    async def work(ctx: Context) -> None:
        try:
            await ctx.spend(tokens=101)
        except OverBudget:
            raise Pause("shall I go on?") from None

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.reason) == (State.PAUSED, "shall I go on?")


def test_a_cancelled_job_over_its_limit_is_cancelled(app):
    @app.task(budget={"tokens": 100}, heartbeat=0.05)
    def work(ctx: SyncContext) -> None:
        try:
            ctx.spend(tokens=101)
        except OverBudget:
            ctx.emit("spent")
        try:
            ctx.wait(60)
        except StopRequested:
            ctx.spend(tokens=1)  # on its way out it still pays
            raise

    job = work.enqueue()

    async def interrupt() -> None:
        async with app.worker(retention=None):
            await until(
                lambda: any(
                    event.kind == "spent" for event in app.__internals__.store.read_stream(job.id).updates
                )
            )
            await asyncio.to_thread(job.cancel, "no more")
            await until(lambda: job.refresh().state is not State.RUNNING)

    asyncio.run(interrupt())
    assert job.state is State.CANCELLED
    assert spent(job) == 102


def test_a_ledger_goes_with_its_job_and_that_of_a_group_with_the_last_one(app, backend):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.spend(tokens=1)

    work.using(group="g").enqueue()
    burst(app)
    assert app.prune(0).jobs == 1
    assert backend.query("SELECT count(*) FROM leasehold.spending") == [(0,)]
    assert backend.query("SELECT count(*) FROM leasehold.budget") == [(0,)]


def test_a_groups_budget_is_set_and_told_by_its_handle(backend):
    with Leasehold(backend.url, schema=backend.schema) as app:
        group = app.group("task-42")
        assert group.budget() == []
        assert [(line.scope, line.unit, line.limit, line.spent) for line in group.budget(tokens=100)] == [
            ("group", "tokens", 100, 0)
        ]
        assert group.budget() == group.budget(tokens=100)
        assert [line.limit for line in group.budget(tokens=None)] == [None]
