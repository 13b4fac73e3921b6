"""Ours, as a user would write it; the same on both stores."""
import asyncio
import itertools
import time

from leasehold import Leasehold
from rec import hit, slept


def adapter(url, lanes=None):
    """What the driver looks for in an adapter, by name. With `lanes` every job is in one of so many."""
    app = Leasehold(url)
    numbers = itertools.cycle(range(lanes or 1))

    if lanes is None:

        @app.task
        async def noop(sent: float) -> None:
            hit(sent)

        def call(sent):
            return {"sent": sent}
    else:

        @app.task(lane="lane {number}")
        async def noop(sent: float, number: int) -> None:
            hit(sent)

        def call(sent):
            return {"sent": sent, "number": next(numbers)}

    @app.task
    async def sleep(sent: float) -> None:
        start = time.time()
        await asyncio.sleep(sent)
        slept(start)

    tasks = {"noop": noop, "sleep": sleep}
    calls = {"noop": call, "sleep": lambda sent: {"sent": sent}}

    async def work(concurrency):
        await app.worker(concurrency=concurrency).run()

    return {
        "setup": app.upgrade,
        "connect": lambda: app.__internals__.store,
        "enqueue": lambda task, arg: tasks[task].enqueue(**calls[task](arg)),
        "enqueue_many": lambda task, args: tasks[task].enqueue_many([calls[task](arg) for arg in args]),
        "work": work,
    }
