"""`.using()` honours every setting that it takes, or refuses it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold import Context, Leasehold, Retry, State, SyncContext
from leasehold.domain.job import Job
from leasehold.errors import InvalidInput, JobNotSucceeded
from leasehold.run.attempt import Attempt
from leasehold.tasks.settings import CallOptions
from tests.workers import burst, until

AT = datetime(2030, 1, 1, tzinfo=UTC)


def after(row: Job) -> float:
    return (row.available_at - row.created_at).total_seconds()


def since(instant: datetime | None, row: Job) -> float | None:
    return None if instant is None else (instant - row.created_at).total_seconds()


IN_THE_ROW: dict[str, tuple[Any, Any, Any]] = {
    "queue": ("other", lambda row: row.queue, "other"),
    "priority": ("high", lambda row: row.priority, 10),
    "lane": ("{n}", lambda row: row.lane, "1"),
    "on_failure": ("skip", lambda row: row.policy.on_failure, "skip"),
    "retry": (Retry(max_attempts=9), lambda row: row.policy.max_attempts, 9),
    "deadline": ("1h", lambda row: since(row.deadline_at, row), 3600),
    "start_by": ("2h", lambda row: since(row.start_by, row), 7200),
    "lease": (90, lambda row: row.lease_seconds, 90.0),
    "on_lost": ("fail", lambda row: row.policy.on_lost, "fail"),
    "count_lost": (True, lambda row: row.policy.count_lost, True),
    "budget": ({"tokens": 5}, lambda row: row.policy.budget, {"tokens": 5}),
    "budget_for": ("attempt", lambda row: row.policy.budget_for, "attempt"),
    "on_breach": ("pause", lambda row: row.policy.on_breach, "pause"),
    "unique": ("{n}", lambda row: row.unique_key, "1"),
    "tags": (("x",), lambda row: row.tags, ("x",)),
    "slots": ({"browser": 1}, lambda row: row.limited, True),
    "delay": (60, after, 60),
    "at": (AT, lambda row: row.available_at, AT),
    "hold": (True, lambda row: row.state, State.PENDING),
    "group": ("g", lambda row: row.group, "g"),
    "trace": ("00-abc", lambda row: row.trace, "00-abc"),
    "result": ("file", lambda row: row.policy.result, "file"),
}
IN_THE_RUN = {"timeout", "stall_after", "on_stall", "on_drain", "heartbeat"}
BY_OTHERS = {
    "rate",
    "unique_for",
    "on_duplicate",
    "max_running",
    "after",
    "on_parent_failure",
    "immediately",
    "key",
    "tx",
    "tenant",
}


def test_every_setting_of_a_call_is_shown_here():
    assert {*IN_THE_ROW, *IN_THE_RUN, *BY_OTHERS} == set(CallOptions.__annotations__)


@pytest.fixture
def work(app):
    app.slots.set("browser", 1)

    @app.task
    def work(n: int = 1) -> None: ...

    return work


@pytest.mark.parametrize("name", IN_THE_ROW)
def test_a_setting_of_one_call_stands_in_its_row(work, name):
    value, read, expected = IN_THE_ROW[name]
    assert read(work.using(**{name: value}).enqueue().__row__) == expected
    assert read(work.enqueue().__row__) != expected, "the task is as it was"


def test_a_call_that_says_what_its_task_says_carries_nothing(app, backend):
    @app.task(timeout=5, on_drain="pause", stall_after="1m", on_stall="stop", heartbeat=2)
    def work() -> None: ...

    same = {"timeout": 5, "on_drain": "pause", "stall_after": "1m", "on_stall": "stop", "heartbeat": 2}
    jobs = [work.enqueue(), work.using(**same).enqueue()]
    for job in jobs:
        assert backend.query("SELECT policy FROM leasehold.job WHERE id = ?", job.id) == [(None,)]


def test_rates_keys_and_caps_of_one_call(app, work):
    app.rates.set("calls", "1/h")
    first, second = (work.using(rate="calls", queue="rated").enqueue() for _ in range(2))
    store = app.__internals__.store
    assert [grant.id for grant in store.claim("w", ["rated"], 10)] == [first.id]
    assert second.refresh().state is State.QUEUED

    kept = work.using(unique="k", unique_for="ever").enqueue()
    kept.cancel()
    assert work.using(unique="k").enqueue() == kept
    with pytest.raises(Exception, match="is held by job"):
        work.using(unique="k", on_duplicate="raise").enqueue()

    with pytest.raises(InvalidInput, match="max_running"):
        app.run_now(work)
    assert app.run_now(work.using(max_running=2)).result(timeout=20) is None

    parent = work.using(hold=True).enqueue()
    child = work.using(after=[parent], on_parent_failure="run").enqueue()
    other = work.using(after=[parent]).enqueue()
    parent.cancel()
    assert (child.refresh().state, other.refresh().state) == (State.QUEUED, State.CANCELLED)


def test_now_and_key_are_for_follow_ups_and_refused_elsewhere(app, work):
    made = []

    @app.task
    def parent(ctx: SyncContext) -> None:
        made.append(ctx.enqueue(work.using(immediately=True, key="k"), 1).id)
        made.append(ctx.enqueue(work.using(immediately=True, key="k"), 1).id)

    parent.enqueue()
    burst(app)
    assert made[0] == made[1]
    for call in (
        lambda: work.using(key="k").enqueue(),
        lambda: work.using(key="k").enqueue_many([{}]),
        lambda: work.using(key="k").bind().enqueue(),
    ):
        with pytest.raises(InvalidInput, match="names a follow-up") as caught:
            call()
        assert caught.value.field == "key"


@pytest.mark.parametrize("name", ["on", "never"])
def test_classes_of_exceptions_cannot_travel_and_are_refused(name):
    app = Leasehold("sqlite:///never-opened.db")

    @app.task(retry=Retry(on=(OSError,), never=(TimeoutError,)))
    def work() -> None: ...

    with pytest.raises(InvalidInput, match="cannot travel") as caught:
        work.using(retry=Retry(**{name: (ValueError,)}))
    assert caught.value.field == f"retry.{name}"
    work.using(retry=Retry(on=(OSError,), max_attempts=5))


def test_a_retry_of_one_call_leaves_the_tasks_exceptions_as_they_are(app):
    tries = []

    @app.task(retry=Retry(on=(OSError,), backoff=0))
    def work(error: str) -> None:
        tries.append(error)
        raise {"os": OSError, "value": ValueError}[error]("no")

    call = work.using(retry=Retry(max_attempts=2, backoff=0))
    call.enqueue("os"), call.enqueue("value")
    burst(app)
    assert (tries.count("os"), tries.count("value")) == (2, 1)


# -- what the run reads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_the_timeout_of_one_call_ends_its_run(app, colour):
    if colour == "async":

        @app.task(retry=Retry(max_attempts=1))
        async def wait(ctx: Context) -> None:
            await asyncio.sleep(30)
    else:

        @app.task(retry=Retry(max_attempts=1))
        def wait(ctx: SyncContext) -> None:
            ctx.wait(30)
            ctx.raise_if_stopped()

    job = wait.using(timeout=0.2).enqueue()
    burst(app)
    assert job.refresh().state is State.TIMED_OUT
    assert "longer than 0.2 s" in job.error


def test_a_call_may_lift_its_tasks_timeout(app):
    @app.task(timeout=0.2, retry=Retry(max_attempts=1))
    async def wait(ctx: Context) -> str:
        await asyncio.sleep(0.6)
        return "rested"

    free, bound = wait.using(timeout=None).enqueue(), wait.enqueue()
    burst(app)
    assert free.result(timeout=5) == "rested"
    assert bound.refresh().state is State.TIMED_OUT


def test_the_stall_limit_of_one_call_is_watched(app):
    @app.task(retry=Retry(max_attempts=1))
    async def wait(ctx: Context) -> None:
        await asyncio.sleep(30)

    job = wait.using(stall_after=0.2, on_stall="pause").enqueue()
    burst(app)
    assert job.refresh().state is State.PAUSED
    assert job.reason == "stalled: no progress, update or log for 0.2 s"


def test_a_drain_does_what_one_call_has_said(app):
    async def scene() -> list[State]:
        begun: list[int] = []

        @app.task
        async def wait(ctx: Context, n: int) -> None:
            begun.append(n)
            await asyncio.sleep(30)

        jobs = [wait.enqueue(1), wait.using(on_drain="pause").enqueue(2)]
        async with app.worker(shutdown_grace=0):
            await until(lambda: len(begun) == 2)
        return [job.refresh().state for job in jobs]

    assert asyncio.run(scene()) == [State.QUEUED, State.PAUSED]


def test_the_heartbeat_of_one_call_is_kept(app):
    @app.task(lease=30, heartbeat=6)
    def work() -> None: ...

    for call, beat in ((work, 6.0), (work.using(heartbeat=0.5), 0.5), (work.using(heartbeat=None), 10.0)):
        call.enqueue()
        (grant,) = app.__internals__.store.claim("w", ["default"], 1)
        run = Attempt(grant, app.__internals__.tasks.find("work"), 0.0, 0.0)
        assert (run.renew_every, run.renew_at) == (beat, beat)
        run.renewed(1.0)
        assert run.renew_at == 1.0 + beat


def test_other_settings_are_refused_by_name(app):
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        work.using(queueing=False)
    assert caught.value.field == "queueing"
    with pytest.raises(InvalidInput) as caught:
        work.using(heartbeat=20)
    assert caught.value.field == "heartbeat"
    with pytest.raises(InvalidInput, match=r'such as budget=\{"tokens": 1200\}'):
        work.using(budget=100)
    assert work.using(lease=timedelta(minutes=2), heartbeat=20).enqueue().created


# -- whichever way the job is made ---------------------------------------------------------------------------------

SAID: dict[str, Any] = {
    "timeout": 0.2,
    "stall_after": "1h",
    "on_stall": "pause",
    "on_drain": "pause",
    "lease": 12,
    "heartbeat": 3,
    "retry": Retry(max_attempts=1, max_crashes=7),
    "budget": {"tokens": 5},
    "priority": 7,
}


def follow_up(app: Leasehold, wait: Any, **more: Any) -> str:
    made: list[str] = []

    @app.task
    def parent(ctx: SyncContext) -> None:
        made.append(ctx.enqueue(wait.using(**SAID, **more)).id)

    parent.enqueue()
    burst(app)
    return made[0]


def retried(app: Leasehold, wait: Any) -> str:
    job = wait.using(**SAID).enqueue()
    job.cancel()
    return job.retry().id


def first(app: Leasehold) -> Any:
    @app.task
    def first() -> None: ...

    return first


def in_dag(app: Leasehold, wait: Any) -> str:
    flow = app.dag()
    flow.add("x", wait.using(**SAID), after=[flow.add("first", first(app))])
    return flow.enqueue()["x"].id


WAYS: dict[str, Any] = {
    "enqueue": lambda app, wait: wait.using(**SAID).enqueue().id,
    "enqueue_many": lambda app, wait: wait.using(**SAID).enqueue_many([{}])[0].id,
    "run_now": lambda app, wait: app.run_now(wait.using(max_running=1, **SAID)).id,
    "run_by_id": lambda app, wait: app.run_by_id(wait.using(queue="nobody", **SAID).enqueue().id).job.id,
    "follow-up": follow_up,
    "follow-up at once": lambda app, wait: follow_up(app, wait, immediately=True),
    "chain": lambda app, wait: app.chain(first(app), wait.using(**SAID)).enqueue()[1].id,
    "dag": in_dag,
    "retry": retried,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_call_says_reaches_its_run_whichever_way_it_is_made(app, way):
    seen: list[tuple[float, float]] = []

    @app.task
    async def wait(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.lease_token))
        await asyncio.sleep(30)

    expected = wait.using(**SAID, hold=True).enqueue().__row__
    job = app.get(WAYS[way](app, wait))
    burst(app)
    with pytest.raises(JobNotSucceeded):
        job.result(timeout=20)
    row = job.refresh().__row__
    assert row.state is State.TIMED_OUT
    assert len(seen) == 1, "one attempt, and no other"
    assert "longer than 0.2 s" in row.error
    assert replace(row.policy, queueing=True) == expected.policy
    assert (row.lease_seconds, row.priority) == (12.0, 7)


@pytest.mark.parametrize("said", [{"timeout": 5}, {"queue": "other"}, {"group": "g"}, {"tenant": "acme"}])
def test_a_schedule_refuses_what_a_call_says_for_it_knows_only_the_task(app, said):
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidInput, match=r"given to \.using\(\).*@app\.task") as caught:
        app.schedule(every="1h")(work.using(**said))
    assert caught.value.field == next(iter(said))
    assert app.schedule(every="1h")(work) is work
