"""PostgreSQL is away when a step has its result, or when the last act begins. Nothing is computed twice."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from leasehold import Context, Leasehold, State, SyncContext
from leasehold.errors import DatabaseUnreachable
from tests.workers import until


def has_succeeded(job) -> bool:
    """The server may still be on its way up."""
    with contextlib.suppress(DatabaseUnreachable):
        return job.refresh().state is State.SUCCEEDED
    return False


@pytest.mark.timeout(120)
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_what_was_computed_while_the_database_was_away_is_stored_when_it_is_back(start_postgres, colour):
    server = start_postgres()
    begun, away = threading.Event(), threading.Event()
    calls = []

    def compute() -> str:
        calls.append(1)
        begun.set()
        assert away.wait(60)
        return "precious"

    with Leasehold(server.create_database("jobs")) as app:
        app.upgrade()
        if colour == "async":

            @app.task(name="work", lease=120)
            async def work(ctx: Context) -> str:
                found = await ctx.step("compute", compute)
                await ctx.checkpoint(found)
                async with ctx.complete(found):
                    pass
                return ""
        else:

            @app.task(name="work", lease=120)
            def work(ctx: SyncContext) -> str:
                found = ctx.step("compute", compute)
                ctx.checkpoint(found)
                with ctx.complete(found):
                    pass
                return ""

        async def main() -> None:
            async with app.worker(retention=None) as worker:
                job = await work.aenqueue()
                await until(begun.is_set)
                await asyncio.to_thread(server.stop, "immediate")
                away.set()
                # It has noticed: somebody has asked in vain.
                await until(lambda: worker.settler.in_trouble or worker._claimer.in_trouble, 60)
                await asyncio.to_thread(server.start)
                await until(lambda: has_succeeded(job), 60)
                assert job.result(timeout=0) == "precious"
                assert (job.__row__.attempt, job.__row__.failures) == (1, 0)
                assert app.__internals__.store.load_steps(job.id) == {"compute": '"precious"'}
                assert app.__internals__.store.load_checkpoint(job.id) == '"precious"'

        asyncio.run(main())
    assert calls == [1]
