"""Waiting for groups: at once, in time, in vain; many waiters and few reads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leasehold import Leasehold, State
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Success
from leasehold.domain.stream import Note, RunNotes
from leasehold.errors import DatabaseUnreachable, GroupOnHold, InvalidInput
from leasehold.operations import groups as operations_on_groups
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.stores.verbs import groups
from leasehold.types import GroupStatus
from tests.backends import new_job
from tests.workers import wait_for

LONG = 60.0
"""A wait that only a test that fails lives through."""


@pytest.fixture
def app(app: Leasehold) -> Leasehold:
    @app.task
    def work(n: int = 0) -> int:
        return n

    @app.task(queue="q")
    def verify() -> None: ...

    return app


@pytest.fixture
def reads(app: Leasehold, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Statements that the app's database has run, by name, from now on."""
    return count_statements(app.__internals__.store, monkeypatch)


def count_statements(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """At the seam of the database, where every statement passes."""
    counted: Counter[str] = Counter()
    database: Any = store._database
    read = database.read

    class Counting:
        def __init__(self, session: Any) -> None:
            self._session = session

        def rows(self, statement: str, /, **given: Any) -> Any:
            counted[statement] += 1
            return self._session.rows(statement, **given)

        def tuples(self, statement: str, /, **given: Any) -> Any:
            counted[statement] += 1
            return self._session.tuples(statement, **given)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

    monkeypatch.setattr(database, "read", lambda work: read(lambda session: work(Counting(session))))
    return counted


def end_one(store: JobStore) -> str:
    (grant,) = store.claim("worker-1", ["default"], 1)
    store.settle([Ending(grant.id, grant.token, Success("1"))])
    store.notify_watchers()
    return grant.id


def waiters(app: Leasehold) -> int:
    watch = app.__internals__.operations._group_watch
    return 0 if watch is None else sum(len(one.waiters) for one in watch._watched.values())


def known_to(app: Leasehold) -> list[int]:
    """The version that each waiter knows."""
    watch = app.__internals__.operations._group_watch
    watched = [] if watch is None else list(watch._watched.values())
    return [since.version for one in watched for since in list(one.waiters.values())]


def test_a_status_answers_at_once_when_there_is_something_to_tell(app: Leasehold):
    group = app.group("g")
    assert group.status(wait=LONG).version == 0, "nothing is live"
    nothing = group.status(wait=LONG, since=0)
    assert (nothing.version, nothing.changed) == (0, False), "nothing is live"
    app.enqueue("work", group="g")
    now = group.status(wait=LONG, since=0)
    assert (now.version, now.changed, now.total) == (1, True, 1)
    old = group.status(wait=LONG, since=99)
    assert (old.version, old.changed) == (1, True), "a version from another life is no reason to wait"
    end_one(app.__internals__.store)
    done = group.status(wait=LONG, since=2)
    assert (done.live, done.changed, done.progress) == (0, False, 1.0)


def test_a_wait_in_vain_says_so(app: Leasehold):
    app.enqueue("work", group="g")
    status = app.group("g").status(wait=0.05, since=1)
    assert (status.changed, status.version, status.live) == (False, 1, 1)
    assert asyncio.run(app.group("g").astatus(wait=0.05, since=1)) == status


def test_a_change_ends_the_wait(app: Leasehold):
    app.enqueue("work", group="g")
    app.enqueue("work", group="g")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.group("g").status, LONG, 2)
        wait_for(lambda: waiters(app), "nobody waits")
        end_one(app.__internals__.store)
        status = waiting.result(20)
    assert (status.changed, status.version, status.succeeded) == (True, 3, 1)
    assert status.results[0].result == 1


def test_verbs_on_jobs_and_groups_end_the_wait(app: Leasehold):
    job = app.enqueue("work", group="g")
    app.enqueue("verify", group="g")
    group = app.group("g")
    with ThreadPoolExecutor(1) as pool:
        for verb in (
            job.pause,
            job.resume,
            lambda: app.enqueue("work", group="g"),
            lambda: group.stop("work", mode="immediate"),
            lambda: (
                app.__internals__.store.stop_group("g", True) or app.__internals__.store.notify_watchers()
            ),
            group.release,
        ):
            since = group.status().version
            waiting = pool.submit(group.status, LONG, since)
            wait_for(lambda: waiters(app), "nobody waits")
            verb()
            assert waiting.result(20).changed


def test_other_groups_changes_do_not_end_the_wait(app: Leasehold, reads: Counter[str]):
    app.enqueue("work", group="g")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.group("g").status, LONG, 1)
        wait_for(lambda: reads["read_group_counts"] == 1 and waiters(app), "nobody waits")
        for _ in range(5):
            before = reads["group_versions"]
            app.enqueue("work", group="other")
            wait_for(lambda before=before: reads["group_versions"] > before, "the hint was not heard")
        assert not waiting.done()
        assert reads["read_group_counts"] == 1, "only versions were read"
        app.enqueue("work", group="g")
        assert waiting.result(20).version == 2


def test_kinds_narrow_the_status(app: Leasehold):
    app.enqueue("work", group="g")
    app.enqueue("verify", group="g")
    assert app.group("g").status(tasks="verify").counts == {"verify": {State.QUEUED: 1}}
    assert app.group("g").status(tasks=["verify", "work"]).total == 2
    with pytest.raises(InvalidInput, match="since"):
        app.group("g").status(since="3")


def test_200_waiters_cost_what_one_costs(app: Leasehold, reads: Counter[str]):
    """A group of 500 jobs: each change is read once, for all."""
    app.__internals__.store.enqueue([new_job(group="g") for _ in range(500)])
    group = app.group("g")
    rounds = 10

    async def follow(answers: list[list[int]]) -> None:
        mine: list[int] = []
        answers.append(mine)
        since = 1
        for _ in range(rounds):
            status = await group.astatus(wait=LONG, since=since)
            assert status.version > since
            since = status.version
            mine.append(since)

    async def change() -> None:
        for version in range(1, 1 + rounds):
            # The next one when all 200 know the last one: else two would be seen as one.
            while known_to(app) != [version] * 200:
                await asyncio.sleep(0.002)
            await asyncio.to_thread(end_one, app.__internals__.store)

    async def all_of_it() -> list[list[int]]:
        answers: list[list[int]] = []
        tasks = [asyncio.create_task(follow(answers)) for _ in range(200)]
        await asyncio.gather(change(), *tasks)
        return answers

    answers = asyncio.run(asyncio.wait_for(all_of_it(), LONG))
    assert len(answers) == 200
    assert {tuple(mine) for mine in answers} == {tuple(range(2, 2 + rounds))}
    statuses = reads["read_group_counts"]
    print(f"\n{app.__internals__.store.label.split(':')[0]}: {rounds} changes, 200 waiters: {dict(reads)}")
    assert statuses <= rounds + 2, "one for each change, one at the beginning"
    assert reads["group_versions"] <= 6 * rounds + 20, "hints and the floor, whatever the number of waiters"
    assert threading.active_count() < 60, "waiting holds no thread"


def test_the_watcher_ends_after_its_last_waiter_and_starts_again(app: Leasehold, monkeypatch):
    monkeypatch.setattr(operations_on_groups, "LINGER_FOR", 0.05)
    app.enqueue("work", group="g")
    for _ in range(2):
        app.group("g").status(wait=0.02, since=1)
        watch = app.__internals__.operations._group_watch
        assert watch is not None
        wait_for(lambda watch=watch: watch._thread is None, "the thread goes on for nobody")
        assert watch._watched == {}


def test_with_hints_cut_off_a_change_is_seen_within_the_floor(app: Leasehold, monkeypatch):
    monkeypatch.setattr(operations_on_groups, "POLL_LISTENING", operations_on_groups.POLL_NOT_LISTENING)
    deaf = app.__internals__.store.group_wakeups("postgresql://nobody@127.0.0.1:1/nowhere")
    monkeypatch.setattr(app.__internals__.store, "group_wakeups", lambda _=None: deaf)
    monkeypatch.setattr(app.__internals__.store, "notify_watchers", lambda: None)
    app.enqueue("work", group="g")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.group("g").status, LONG, 1)
        wait_for(lambda: waiters(app), "nobody waits")
        began = time.monotonic()
        app.__internals__.store.cancel(app.jobs(group="g").jobs[0].id)
        assert waiting.result(20).live == 0
        assert time.monotonic() - began < 15.0


def test_whoever_waits_is_told_when_the_store_is_gone(app: Leasehold):
    app.enqueue("work", group="g")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.group("g").status, LONG, 1)
        wait_for(lambda: waiters(app), "nobody waits")
        app.close()
        with pytest.raises(DatabaseUnreachable):
            waiting.result(20)
    assert app.group("g").status().version == 1, "the app opens another store, and another watch"


def test_an_async_waiter_that_is_cancelled_leaves_nothing_behind(app: Leasehold):
    app.enqueue("work", group="g")

    async def give_up() -> None:
        waiting = asyncio.create_task(app.group("g").astatus(wait=LONG, since=1))
        while not waiters(app):
            await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(give_up())
    assert waiters(app) == 0
    app.enqueue("work", group="g")
    assert app.group("g").status(wait=LONG, since=1).version == 2


def test_the_handle_lists_stops_holds_and_releases(app: Leasehold):
    group = app.group("g")
    job = app.enqueue("work", group="g")
    assert [one.id for one in group.jobs().jobs] == [job.id]
    report = group.stop(hold=True, reason="maintenance", actor="ann")
    assert report.cancelled_counts == {"work": {State.QUEUED: 1}}
    assert report.unaffected_tasks == []
    status = group.status()
    assert (status.state, status.reason) == ("held", "maintenance")
    with pytest.raises(GroupOnHold, match="maintenance"):
        app.enqueue("work", group="g")
    with pytest.raises(GroupOnHold):
        job.retry()
    assert group.release(actor="ann")
    assert not asyncio.run(group.arelease())
    app.enqueue("work", group="g")

    async def twins() -> tuple[Any, GroupStatus]:
        assert (await group.ajobs(state=State.QUEUED)).jobs
        return await group.astop(dry_run=True), await group.astatus()

    reported, status = asyncio.run(twins())
    assert (reported.dry_run, status.live) == (True, 1)
    assert asyncio.run(app.astop(tasks=["work"])).unaffected_tasks == ["verify"]
    assert app.stop(queue="nowhere").unaffected_tasks == ["verify", "work"]
    assert app.stop(queue="q").unaffected_tasks == ["work"], "verify is at home there"


def test_without_a_version_the_wait_is_for_the_next_change(app: Leasehold):
    app.enqueue("work", group="g")
    app.enqueue("work", group="g")
    group = app.group("g")
    in_vain = group.status(wait=0.05)
    assert (in_vain.changed, in_vain.version, in_vain.live) == (False, 2, 2)
    assert asyncio.run(group.astatus(wait=0.05)) == in_vain
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(group.status, LONG)
        wait_for(lambda: waiters(app), "nobody waits")
        end_one(app.__internals__.store)
        status = waiting.result(20)
    assert (status.changed, status.version, status.succeeded) == (True, 3, 1)
    end_one(app.__internals__.store)
    over = group.status(wait=LONG)
    assert (over.live, over.changed) == (0, False), "nothing is live"


def notify(store: JobStore, grant: Grant, place: int, task: str, data: str, times: int = 1) -> None:
    """As a worker writes what a handler has told."""
    notes = tuple(Note(place + n, task, data) for n in range(times))
    store.write_updates([RunNotes(grant.id, grant.token, grant.attempt, notes)])


def test_a_partial_status_tells_how_far_the_runs_are_and_what_they_have_emitted(app: Leasehold):
    store = app.__internals__.store
    app.enqueue("work", group="g")
    app.enqueue("work", group="g")
    app.enqueue("work", group="other")
    group = app.group("g")
    first, second, other = store.claim("worker-1", ["default"], 3)
    notify(store, first, 1, "page", '"a"')
    notify(store, first, 2, "progress", '{"done": 1, "total": 4, "note": "a"}')
    notify(store, first, 3, "page", '"b"')
    notify(store, other, 1, "page", '"c"')
    status = group.status(partial=True)
    assert [run.id for run in status.running] == [first.id, second.id]
    reported, silent = status.running
    assert (reported.task, reported.attempt, str(reported.progress)) == ("work", 1, "1 of 4: a")
    assert [(event.kind, event.data) for event in reported.emitted] == [("page", "a"), ("page", "b")]
    assert (silent.progress, silent.emitted) == (None, ())
    plain = group.status()
    assert (plain.running, plain.noted) == ((), 0)
    assert plain.version == status.version, "what runs tell does not move it"
    assert group.status(partial=True, tasks=["verify"]).running == ()
    store.settle([Ending(first.id, first.token, Success("1"))])
    assert [run.id for run in group.status(partial=True).running] == [second.id]
    with pytest.raises(InvalidInput, match="partial=True"):
        group.status(noted=1)


def test_partial_results_are_the_latest_up_to_the_cap_over_all_runs(app: Leasehold, monkeypatch):
    monkeypatch.setattr(groups, "MOST_IN_STATUS", 6)
    store = app.__internals__.store
    for _ in range(2):
        app.enqueue("work", group="g")
    grants = store.claim("worker-1", ["default"], 2)
    for grant in grants:
        for place in range(1, 6):
            notify(store, grant, place, "page", str(place))
    runs = app.group("g").status(partial=True).running
    assert [[event.data for event in run.emitted] for run in runs] == [[3, 4, 5], [3, 4, 5]]


def test_what_runs_tell_ends_the_wait_of_those_who_asked_for_it(app: Leasehold):
    store = app.__internals__.store
    app.enqueue("work", group="g")
    group = app.group("g")
    (grant,) = store.claim("worker-1", ["default"], 1)
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(group.status, LONG, 1)
        waiting = pool.submit(group.status, LONG, 1, partial=True)
        wait_for(lambda: waiters(app) == 2, "nobody waits")
        notify(store, grant, 1, "progress", '{"done": 1, "total": 4, "note": ""}')
        status = waiting.result(20)
        assert (status.changed, status.version, str(status.running[0].progress)) == (True, 1, "1 of 4")
        assert not plain.done(), "versions have not moved"
        in_vain = group.status(0.05, 1, partial=True, noted=status.noted)
        assert (in_vain.changed, in_vain.noted) == (False, status.noted)
        notify(store, grant, 2, "page", '"a"')
        again = group.status(LONG, 1, partial=True, noted=status.noted)
        assert (again.changed, again.running[0].emitted[0].data) == (True, "a")
        end_one_of(store, grant)
        assert plain.result(20).changed


def end_one_of(store: JobStore, grant: Grant) -> None:
    store.settle([Ending(grant.id, grant.token, Success("1"))])
    store.notify_watchers()


def test_runs_that_tell_much_are_looked_at_twice_a_second(app: Leasehold, reads: Counter[str]):
    """And only as long as somebody wants to hear of it."""
    store = app.__internals__.store
    app.enqueue("work", group="g")
    group = app.group("g")
    (grant,) = store.claim("worker-1", ["default"], 1)
    group.status(wait=0.3, since=1)
    assert reads["group_notes"] == 0
    began_at, answers, noted, place = time.monotonic(), 0, 0, 0
    with ThreadPoolExecutor(1) as pool:
        while answers < 6:
            waiting = pool.submit(group.status, LONG, 1, partial=True, noted=noted)
            while not waiting.done():
                notify(store, grant, place + 1, "page", "1", times=10)
                place += 10
                store.notify_watchers()
            noted = waiting.result().noted
            answers += 1
    took = time.monotonic() - began_at
    assert answers <= took / operations_on_groups.COUNT_UPDATES_EVERY + 3
    assert place > 3 * answers
