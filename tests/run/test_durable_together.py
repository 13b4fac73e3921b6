"""Steps, follow-ups, what is told and `ctx.complete` in one job."""

from __future__ import annotations

import pytest

from leasehold import Context, SyncContext
from tests.workers import burst


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_completed_job_has_its_steps_its_follow_ups_and_all_that_it_told(app, colour):
    @app.task
    def after(n: int) -> int:
        return n

    if colour == "async":

        @app.task(name="whole")
        async def whole(ctx: Context) -> int:
            n = await ctx.step("one", lambda: 1, durable="batch")
            for item in range(5):
                ctx.emit("item", item)
            ctx.enqueue(after, n=n)
            async with ctx.complete(n + 1):
                ctx.enqueue(after, n=n + 1)
            return 0
    else:

        @app.task(name="whole")
        def whole(ctx: SyncContext) -> int:
            n = ctx.step("one", lambda: 1, durable="batch")
            for item in range(5):
                ctx.emit("item", item)
            ctx.enqueue(after, n=n)
            with ctx.complete(n + 1):
                ctx.enqueue(after, n=n + 1)
            return 0

    job = app.enqueue("whole")
    waiting = after.using(after=[job]).enqueue(n=7)
    burst(app)
    assert job.result(timeout=0) == 2, "what comes after ctx.complete changes nothing"
    assert [event.data for event in job.watch(timeout=5) if event.kind == "item"] == [0, 1, 2, 3, 4]
    assert app.__internals__.store.load_steps(job.id) == {"one": "1"}
    follow_ups = [one for one in job.relatives() if one.relation == "follow_up"]
    assert sorted(app.get(one.id).result(timeout=0) for one in follow_ups) == [1, 2]
    assert waiting.result(timeout=0) == 7
