"""Follow-ups, chains and DAGs as users write them, on a real worker and both stores."""

from __future__ import annotations

import asyncio

import pytest

from leasehold import Context, Fail, Leasehold, Retry, State, SyncContext
from leasehold.errors import DependencyCycle, DuplicateJob, InvalidArguments, InvalidInput, JobNotFound
from tests.workers import burst


def jobs(app: Leasehold, task: str) -> list[dict[str, object]]:
    return sorted((app.get(job.id).args for job in app.jobs(task=task, limit=500).jobs), key=str)


# -- follow-ups --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_handler_asks_for_follow_ups_and_they_run_after_its_success(app: Leasehold, colour: str):
    @app.task
    def verify(claim_id: int) -> int:
        return claim_id

    if colour == "async":

        @app.task
        async def parent(ctx: Context) -> str:
            return ctx.enqueue(verify.using(priority="low"), claim_id=7).id
    else:

        @app.task
        def parent(ctx: SyncContext) -> str:
            return ctx.enqueue(verify.using(priority="low").bind(claim_id=7)).id

    made = parent.enqueue()
    burst(app)
    child = app.get(made.result(timeout=0))
    assert (child.state, child.args, child.__row__.priority) == (State.SUCCEEDED, {"claim_id": 7}, -10)
    assert [(one.relation, one.id) for one in child.relatives()] == [("follow_up_of", made.id)]


@pytest.mark.parametrize("ending", ["raise", "fail", "retry"])
def test_a_run_that_does_not_succeed_leaves_no_follow_up(app: Leasehold, ending: str):
    @app.task
    def verify(attempt: int) -> None: ...

    @app.task(retry=Retry(max_attempts=2, backoff=0))
    async def parent(ctx: Context) -> None:
        ctx.enqueue(verify, attempt=ctx.attempt)
        if ending == "fail":
            raise Fail("no")
        if ending == "raise" or ctx.attempt == 1:
            raise RuntimeError("no")

    parent.enqueue()
    burst(app)
    assert jobs(app, "verify") == ([{"attempt": 2}] if ending == "retry" else [])


def test_a_wrong_follow_up_is_refused_where_it_is_asked_for(app: Leasehold):
    seen: list[Exception] = []

    @app.task
    def verify(claim_id: int) -> None: ...

    @app.task
    async def parent(ctx: Context) -> None:
        for call in (
            lambda: ctx.enqueue(verify, claim_id="x"),
            lambda: ctx.enqueue(verify),  # type: ignore[call-arg]
            lambda: ctx.enqueue(verify.using(key="k"), claim_id=1),
            lambda: ctx.enqueue(verify.using(after="x"), claim_id=1),
        ):
            try:
                call()
            except InvalidInput as error:
                seen.append(error)

    made = parent.enqueue()
    burst(app)
    assert made.refresh().state is State.SUCCEEDED
    assert [type(error) for error in seen] == [InvalidArguments, InvalidArguments, InvalidInput, InvalidInput]
    assert jobs(app, "verify") == []


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_follow_up_made_now_is_there_at_once_and_once_for_all_runs(app: Leasehold, colour: str):
    there: list[bool] = []

    @app.task
    def verify(n: int) -> None: ...

    now = verify.using(immediately=True)
    retry = Retry(max_attempts=3, backoff=0)

    def look(ctx: Context | SyncContext, found: list[str]) -> None:
        there.append(all(app.get(one).state is not None for one in found))
        if ctx.attempt < 3:
            raise RuntimeError("again")

    if colour == "async":

        @app.task(retry=retry)
        async def parent(ctx: Context) -> None:
            made = [await ctx.enqueue(now, n) for n in range(2)]
            made.append(await ctx.enqueue(now.using(key="named"), 2))
            await asyncio.to_thread(look, ctx, [one.id for one in made])
    else:

        @app.task(retry=retry)
        def parent(ctx: SyncContext) -> None:
            made = [ctx.enqueue(now, n) for n in range(2)]
            made.append(ctx.enqueue(now.using(key="named"), 2))
            look(ctx, [one.id for one in made])

    made = parent.enqueue()
    burst(app)
    assert made.refresh().state is State.SUCCEEDED
    assert there == [True, True, True]
    assert jobs(app, "verify") == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert {one.relation for one in made.relatives()} == {"follow_up"}
    assert len(made.relatives()) == 3


def test_a_follow_up_made_now_stays_when_its_parent_fails(app: Leasehold):
    @app.task
    def verify() -> None: ...

    @app.task
    def parent(ctx: SyncContext) -> None:
        ctx.enqueue(verify.using(immediately=True))
        raise Fail("no")

    parent.enqueue()
    burst(app)
    assert len(jobs(app, "verify")) == 1


def test_one_that_nobody_awaited_comes_with_the_success(app: Leasehold):
    @app.task
    def verify() -> None: ...

    @app.task
    async def parent(ctx: Context) -> None:
        ctx.enqueue(verify.using(immediately=True))

    parent.enqueue()
    burst(app)
    assert len(jobs(app, "verify")) == 1


def test_awaiting_one_that_comes_with_the_success_is_refused(app: Leasehold):
    @app.task
    def verify() -> None: ...

    @app.task
    async def parent(ctx: Context) -> None:
        await ctx.enqueue(verify)

    made = parent.enqueue()
    burst(app)
    assert made.refresh().state is State.FAILED
    assert "do not await it" in (made.error or "")


def test_a_follow_up_now_with_a_held_key_says_so_to_the_handler(app: Leasehold):
    @app.task(unique="k", on_duplicate="raise")
    def verify() -> None: ...

    seen: list[str] = []

    @app.task
    def parent(ctx: SyncContext) -> None:
        try:
            ctx.enqueue(verify.using(immediately=True))
        except DuplicateJob as error:
            seen.append(error.job_id)

    holder = verify.using(hold=True).enqueue()
    made = parent.enqueue()
    burst(app)
    assert seen == [holder.id]
    assert made.history() == [], "the handler was told; it is not tried again with the success"


# -- dependencies ------------------------------------------------------------------------------------------------------
def test_a_fan_in_finds_the_results_of_its_fan_out_in_order(app: Leasehold):
    @app.task
    async def square(n: int) -> int:
        return n * n

    @app.task
    def total(ctx: SyncContext) -> list[int]:
        return list(ctx.results().values())

    @app.task
    async def total_async(ctx: Context) -> list[int]:
        assert [one.state for one in await ctx.parents()] == [State.SUCCEEDED] * 10
        return list((await ctx.results()).values())

    parts = square.enqueue_many([{"n": n} for n in range(10)])
    ends = [task.using(after=parts).enqueue() for task in (total, total_async)]
    burst(app)
    assert [job.result(timeout=0) for job in ends] == [[n * n for n in range(10)]] * 2


def test_on_parent_failure_run_lets_the_child_see_who_failed(app: Leasehold):
    @app.task
    def good() -> int:
        return 1

    @app.task
    def bad() -> int:
        raise Fail("no")

    @app.task(lane="l", on_failure="skip")
    def after_all(ctx: SyncContext) -> tuple[list[str], list[int]]:
        return [f"{one.task} {one.state}" for one in ctx.parents()], list(ctx.results().values())

    parents = [bad.enqueue(), good.enqueue()]
    child = after_all.using(after=parents, on_parent_failure="run").enqueue()
    strict = after_all.using(after=[job.id for job in parents]).enqueue()
    assert child.__row__.policy.on_failure == "skip", "the lane's on_failure is another matter"
    burst(app)
    assert child.result(timeout=0) == (["bad failed", "good succeeded"], [1])
    assert strict.refresh().reason == f"job {parents[0].id} (bad) ended failed"


def test_a_job_that_waits_explains_for_what(app: Leasehold):
    @app.task
    def work() -> None: ...

    parents = [work.using(hold=True).enqueue() for _ in range(7)]
    child = work.using(after=parents).enqueue()
    holds = [hold for hold in child.explain() if hold.cause == "parent"]
    assert len(holds) == 6
    assert holds[0].detail == (
        f"it waits for job {parents[0].id} (work, pending), and will be cancelled if that does not succeed"
    )
    assert holds[0].remedy == f"see what holds it: leasehold why {parents[0].id}"
    assert holds[-1].detail == "it waits for 2 more job(s) to end"


@pytest.mark.parametrize("after", ["one", 7, [7], ["no id"]])
def test_an_after_that_is_no_list_of_jobs_is_refused(app: Leasehold, after: object):
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidInput, match="after"):
        work.using(after=after).enqueue()


def test_what_is_given_to_using_serves_every_call_that_follows(app: Leasehold):
    @app.task
    def work(n: int = 0) -> None: ...

    parents = [work.using(hold=True).enqueue() for _ in range(2)]
    waiting = work.using(after=(job for job in parents))
    children = [*waiting.enqueue_many([{"n": 1}, {"n": 2}]), waiting.using(priority="high").enqueue()]
    assert [job.__row__.unmet for job in children] == [2, 2, 2]


def test_an_unknown_parent_is_refused_by_its_id(app: Leasehold):
    @app.task
    def work() -> None: ...

    with pytest.raises(JobNotFound, match="00000000-0000-7000-8000-000000000000"):
        work.using(after=["00000000-0000-7000-8000-000000000000"]).enqueue()


# -- chains and DAGs ---------------------------------------------------------------------------------------------------
def test_a_chain_runs_in_order_and_hands_results_on(app: Leasehold):
    @app.task
    def start(n: int) -> int:
        return n

    @app.task
    async def double(ctx: Context) -> int:
        (before,) = (await ctx.results()).values()
        return 2 * before

    chain = app.chain(start.bind(3), double, double.using(priority="high"))
    made = chain.enqueue()
    assert [job.state for job in made] == [State.QUEUED, State.PENDING, State.PENDING]
    assert [job.id for job in chain.enqueue()] == [job.id for job in made], "a repeat is harmless"
    burst(app)
    assert [job.result(timeout=0) for job in made] == [3, 6, 12]


def test_a_broken_chain_ends_with_its_cause_on_every_link(app: Leasehold):
    @app.task
    def bad() -> None:
        raise Fail("no")

    @app.task
    def link() -> None: ...

    made = asyncio.run(app.chain(link, bad, link, link).aenqueue())
    burst(app)
    cause = f"job {made[1].id} (bad) ended failed"
    assert [(job.refresh().state, job.reason) for job in made[2:]] == [(State.CANCELLED, cause)] * 2


def test_a_dag_is_stored_whole_whatever_the_order_of_its_nodes(app: Leasehold):
    order: list[str] = []

    @app.task
    def node(ctx: SyncContext, name: str) -> str:
        order.append(name)
        return name + "".join(f"({result})" for result in ctx.results().values())

    flow = app.dag()
    flow.add("d", node.bind("d"), after=["b", "c"])
    flow.add("b", node.bind("b"), after=["a"])
    flow.add("c", node.bind(name="c"), after=["a"], on_parent_failure="run")
    flow.add("a", node.bind("a"))
    made = flow.enqueue()
    assert list(made) == ["d", "b", "c", "a"]
    assert flow.enqueue() == made
    burst(app)
    assert made["d"].result(timeout=0) == "d(b(a))(c(a))"
    assert (order[0], order[-1]) == ("a", "d")


def test_a_dag_may_wait_for_jobs_that_exist(app: Leasehold):
    @app.task
    def node() -> None: ...

    old = node.using(hold=True).enqueue()
    flow = app.dag()
    flow.add("a", node, after=[old])
    job = flow.enqueue()["a"]
    assert [one.id for one in job.relatives()] == [old.id]


def test_a_circle_is_refused_by_name_and_nothing_is_stored(app: Leasehold):
    @app.task
    def node() -> None: ...

    flow = app.dag()
    flow.add("alone", node)
    flow.add("a", node, after=["c"])
    flow.add("b", node, after=["a"])
    flow.add("c", node, after=["b"])
    with pytest.raises(DependencyCycle) as refused:
        flow.enqueue()
    cycle = refused.value.cycle
    assert cycle[0] == cycle[-1]
    assert sorted(cycle[1:]) == ["a", "b", "c"]
    waits = {"a": "c", "b": "a", "c": "b"}
    assert [waits[name] for name in cycle[:-1]] == cycle[1:], "an arrow means: waits for"
    assert app.jobs().jobs == []


def test_a_dag_refuses_unknown_and_doubled_names(app: Leasehold):
    @app.task
    def node() -> None: ...

    flow = app.dag()
    flow.add("a", node, after=["x"])
    with pytest.raises(InvalidInput, match="'a' waits for 'x', which is not a node"):
        flow.enqueue()
    with pytest.raises(InvalidInput, match="is taken"):
        flow.add("a", node)
    with pytest.raises(InvalidInput, match="use 'cancel' or 'run'"):
        flow.add("b", node, on_parent_failure="skip")
    with pytest.raises(InvalidInput, match="no calls"):
        app.chain()
