"""Enqueue inside the user's own transaction, over every kind of connection, with real drivers and databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import Job, Leasehold
from leasehold.errors import JobNotFound
from tests.backends import Backend, new_id
from tests.connections import KINDS, User, connect
from tests.workers import burst


@pytest.fixture(params=KINDS, ids=[f"{kind} on {database}" for database, kind in KINDS])
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture
def backend(kind: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """The database that this kind of connection is for."""
    if kind[0] == "sqlite":
        backend = Backend("sqlite", f"sqlite:///{tmp_path}/jobs.db")
        backend.open().upgrade()
    else:
        backend = request.getfixturevalue("_postgres_backend")
        backend.empty()
        backend.query("drop table if exists orders")
    yield backend
    backend.close_opened()


@pytest.fixture
def task(app: Leasehold):
    """Of a name that no gate has yet."""
    done: list[int] = []

    @app.task(name=f"ship-{new_id()}")
    def ship(order: int) -> int:
        done.append(order)
        return order

    return ship


def stored(backend: Backend) -> tuple[int, int, int]:
    """Rows of the user's, jobs, and whatever else a job may have left."""
    sides = ("ready", "lane_place", "parked", "ticket", "unique_key", "tag", "member", "job_group")
    counts = [backend.query(f"select count(*) from leasehold.{side}")[0][0] for side in sides]
    orders = backend.query("select count(*) from orders")[0][0]
    return orders, backend.query("select count(*) from leasehold.job")[0][0], sum(counts)


def test_a_rollback_leaves_no_job_and_a_commit_leaves_one(kind, backend, app, task):
    async def use() -> Job:
        async with connect(kind[1], backend) as user:
            await user.begin()
            await user.enqueue(task, 0)  # before any statement of the user's own
            await user.rollback()
            assert stored(backend) == (0, 0, 0)

            await user.begin()
            await user.execute("insert into orders values ('undone')")
            undone = await user.enqueue(task, 1)
            await user.rollback()
            assert stored(backend) == (0, 0, 0)
            with pytest.raises(JobNotFound):
                await undone.arefresh()

            await user.begin()
            await user.execute("insert into orders values ('done')")
            job = await user.enqueue(task, 2)
            with pytest.raises(JobNotFound):
                await job.arefresh()
            await user.commit()
            assert stored(backend) == (1, 1, 1)
            assert (await job.arefresh()).state == "queued"

            return job

    job = asyncio.run(use())
    burst(app)
    assert job.result(timeout=0) == 2


def test_what_a_job_brings_along_goes_with_it(kind, backend, app, task):
    """Lane, unique key, tags, group, limits, delay; a second call finds the job of the first, uncommitted as it is."""
    brought = {
        "lane": "l{order}",
        "unique": "k{order}",
        "tags": ("a", "b{order}"),
        "group": "g",
        "deadline": "1h",
    }

    async def use(user: User) -> list[Job]:
        await user.begin()
        first = await user.enqueue(task, 1, **brought)
        second = await user.enqueue(task, 1, **brought)
        assert (first.created, second.created, second.id) == (True, False, first.id)
        later = await user.enqueue(task, 2, **brought, delay="1h")
        many = await user.enqueue_many(task, [{"order": n} for n in range(3, 63)], tags=("many",))
        assert later.created
        assert len({job.id for job in many}) == 60
        return [first, *many]

    async def twice() -> list[Job]:
        async with connect(kind[1], backend) as user:
            await use(user)
            await user.rollback()
            assert stored(backend) == (0, 0, 0)
            jobs = await use(user)
            await user.commit()
            return jobs

    jobs = asyncio.run(twice())
    store = app.__internals__.store
    assert app.group("g").status().live == 2
    assert store.misplaced() == []
    assert store.stuck_lanes() == []
    burst(app)
    assert app.group("g").status().live == 1
    assert [job.result(timeout=0) for job in jobs] == [1, *range(3, 63)]
    assert backend.query("select name, count(*) from leasehold.tag group by name order by name") == [
        ("a", 2),
        ("b1", 1),
        ("b2", 1),
        ("many", 60),
    ]
    assert store.misplaced() == []
    assert store.stuck_lanes() == []
