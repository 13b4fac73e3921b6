"""Ours on PostgreSQL, as a user would write it."""
import asyncio
import time

from adapters._common import PG, version
from leasehold import Leasehold
from rec import hit, slept

BACKEND = "postgres"
VERSION = version("leasehold", "psycopg")
SETTINGS = "defaults but concurrency 1000; finished rows kept, every write fenced by the lease's token"
CONCURRENCY = 1000
SLEEPERS = True
UNFINISHED = "SELECT count(*) FROM leasehold.job WHERE state IN ('queued', 'running')"
HISTORY = """INSERT INTO leasehold.job (id, kind, queue, gate, state, args, created_at, available_at, attempt, lease_token,
    first_started_at, started_at, finished_at, settled_by, settled_token)
  SELECT gen_random_uuid(), 'noop', 'default', 1, 'succeeded', '{"sent":0.0}', now(), now(), 1, 2, now(), now(), now(), 'w', 1
  FROM generate_series(1, %(n)s)"""

app = Leasehold(PG or "postgresql://nowhere")


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
