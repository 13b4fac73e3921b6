"""Ours on SQLite, as a user would write it."""
import asyncio
import time

from adapters._common import SQLITE, version
from leasehold import Leasehold
from rec import hit, slept

BACKEND = "sqlite"
VERSION = version("leasehold")
SETTINGS = "synchronous=FULL (our default), concurrency 1000; finished rows kept"
CONCURRENCY = 1000
SLEEPERS = True
UNFINISHED = "SELECT count(*) FROM job WHERE state IN ('queued', 'running')"

app = Leasehold(f"sqlite:///{SQLITE}")


@app.task
async def noop(sent: float) -> None:
    hit(sent)


@app.task
async def sleep(sent: float) -> None:
    start = time.time()
    await asyncio.sleep(sent)
    slept(start)


TASKS = {"noop": noop, "sleep": sleep}


def setup():
    app.upgrade()


def connect():
    app.store  # noqa: B018  opened when first asked for


def enqueue(task, arg):
    TASKS[task].enqueue(sent=arg)


def enqueue_many(task, args):
    TASKS[task].enqueue_many([{"sent": arg} for arg in args])


async def work(concurrency):
    await app.worker(concurrency=concurrency).run()
