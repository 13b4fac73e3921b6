"""Ours, as a user would write it; the same on both stores."""
import asyncio
import time

from leasehold import Leasehold
from rec import hit, slept


def adapter(url):
    """What the driver looks for in an adapter, by name."""
    app = Leasehold(url)

    @app.task
    async def noop(sent: float) -> None:
        hit(sent)

    @app.task
    async def sleep(sent: float) -> None:
        start = time.time()
        await asyncio.sleep(sent)
        slept(start)

    tasks = {"noop": noop, "sleep": sleep}

    async def work(concurrency):
        await app.worker(concurrency=concurrency).run()

    return {
        "setup": app.upgrade,
        "connect": lambda: app.__internals__.store,
        "enqueue": lambda task, arg: tasks[task].enqueue(sent=arg),
        "enqueue_many": lambda task, args: tasks[task].enqueue_many([{"sent": arg} for arg in args]),
        "work": work,
    }
