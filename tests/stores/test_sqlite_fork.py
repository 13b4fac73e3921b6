"""SQLite's locks do not survive a fork: nothing is open at that moment, or the child refuses the file."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasehold import Leasehold
from leasehold.errors import DatabaseUnreachable
from leasehold.stores.open import open_store
from leasehold.stores.sqlite.store import SqliteStore
from leasehold.stores.store import JobStore
from tests.backends import new_job, put
from tests.stores.test_fork import in_child, run_one

PRODUCERS, WORKERS, JOBS = 3, 2, 60


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def store(url: str) -> JobStore:
    store = open_store(url)
    store.upgrade()
    return store


def end_after(seconds: int) -> None:
    """Whatever this process hangs in."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            end_after(90)  # it must not outlive a test that has failed
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def add_line(file: Path, line: str) -> None:
    with file.open("a") as lines:  # one short write at the end: whole, whoever else writes
        lines.write(f"{line}\n")


@pytest.mark.timeout(100)
def test_forked_producers_and_workers_lose_nothing_and_double_nothing_while_the_parent_closes_at_random(
    url: str, tmp_path: Path
) -> None:
    app, runs = Leasehold(url), tmp_path / "runs"

    @app.task(name="note")
    async def note(n: int) -> None:
        add_line(runs, str(n))

    async def serve() -> None:
        worker = app.worker(concurrency=4, threads=1)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.request_drain)
        await worker.run()

    def produce(first: int) -> None:
        for n in range(first, first + JOBS):
            add_line(tmp_path / f"made-{first}", f"{n} {note.enqueue(n).id}")

    app.count()  # the parent has used it
    workers = [forked(lambda: asyncio.run(serve())) for _ in range(WORKERS)]
    firsts = [1000 * number for number in range(1, PRODUCERS + 1)]
    producers = [forked(lambda first=first: produce(first)) for first in firsts]
    rng, ended = random.Random(7), []
    while len(ended) < PRODUCERS:
        rng.choice([app.close, app.count, lambda: app.jobs(limit=5), lambda: status_of(forked(app.close))])()
        ended += [pid for pid in producers if pid not in ended and os.waitpid(pid, os.WNOHANG)[0] == pid]
    made = [
        line.split() for first in firsts for line in (tmp_path / f"made-{first}").read_text().splitlines()
    ]
    assert len(made) == PRODUCERS * JOBS
    while app.count()["succeeded"] < len(made):
        rng.choice([app.close, app.count])()
        assert [pid for pid in workers if os.waitpid(pid, os.WNOHANG)[0]] == []
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    assert [status_of(pid) for pid in workers] == [0] * WORKERS
    app.close()
    with Leasehold(url) as fresh:
        assert {job.id for job in fresh.jobs(limit=500).jobs} == {job for _, job in made}
        assert fresh.count()["succeeded"] == len(made)
    assert Counter(runs.read_text().split()) == Counter(n for n, _ in made)


def test_what_a_child_stores_after_its_parent_has_closed_is_kept(store: JobStore, url: str) -> None:
    """The last close of a process that seems to be alone unlinks the log."""
    put(store)
    go, done = multiprocessing.Event(), multiprocessing.Event()

    def work() -> None:
        put(store)
        done.set()
        assert go.wait(30)
        for _ in range(10):
            put(store)
        run_one(store, "child")

    pid = forked(work)
    assert done.wait(30)
    store.close()
    go.set()
    assert status_of(pid) == 0
    after = open_store(url)
    assert (after.count()["queued"], after.count()["succeeded"]) == (11, 1)
    after.close()


def test_a_process_of_multiprocessing_uses_the_app_of_its_parent(url: str) -> None:
    with Leasehold(url) as app:

        @app.task
        async def work() -> str:
            return "done"

        first = work.enqueue()

        def child() -> None:
            work.enqueue()
            asyncio.run(app.worker(burst=True).run())

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        app.close()
        process.join(60)
        assert process.exitcode == 0
        assert first.result(0) == "done"
        assert app.count()["succeeded"] == 2


def test_a_child_that_is_forked_while_a_thread_writes_can_write(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A disk that is slow for a while is not the question here.
    monkeypatch.setattr("leasehold.stores.sqlite.connections.FORK_SECONDS", 60.0)
    stop, wrote = threading.Event(), threading.Event()
    made: list[str] = []

    def write() -> None:
        while not stop.is_set():
            made.append(put(store).id)
            wrote.set()

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert wrote.wait(30)
        statuses = [in_child(lambda: made.append(put(store).id)) for _ in range(10)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statuses == [0] * 10
    assert store.count()["queued"] == len(made) + 10
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at open files where Linux shows them")
def test_nothing_is_open_at_a_fork(store: JobStore, url: str) -> None:
    store.count()
    beside, wakeups = store.another(), store.wakeups()
    forgotten = open_store(url)
    put(beside)

    def look() -> None:
        links = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the listing itself
                links.append(os.readlink(f"/proc/self/fd/{fd}"))
        assert not [file for file in links if "jobs.db" in file], links

    assert in_child(look) == 0
    assert wakeups.wait(0.0), "it has not heard of what came during the fork"
    assert (store.count()["queued"], forgotten.count()["queued"]) == (1, 1)
    wakeups.close()
    for one in (store, beside, forgotten):
        one.close()


def throw(error: Exception) -> None:
    raise error


def expect_refusal(*uses: Callable[[], object]) -> None:
    for use in uses:
        with pytest.raises(DatabaseUnreachable, match=r"forked while the file was in use.*'spawn'"):
            use()


def test_a_child_that_is_forked_inside_a_transaction_refuses_and_the_parent_commits(
    store: SqliteStore, url: str
) -> None:
    put(store)
    before = new_job()
    status = []

    def fork_inside(session: Any) -> None:
        child = os.fork()
        if child == 0:
            return  # and so to the commit
        status.append(status_of(child))
        session.run("record_migration", version=999)

    try:
        store._sqlite.transact(fork_inside)
    except DatabaseUnreachable as error:
        # Only in the child.
        code, refusal = 1, error
        try:
            expect_refusal(
                lambda: throw(refusal),
                store.count,
                lambda: put(store),
                lambda: open_store(url),
                store.another,
            )
            store.close()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert status == [0]
    assert store._sqlite.schema_version() == 999
    store.enqueue([before])
    assert in_child(lambda: put(store)) == 0
    assert store.count()["queued"] == 3
    store.close()


def test_a_long_transaction_of_a_handler_does_not_hold_up_a_fork_and_the_child_refuses(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.stores.sqlite.connections.FORK_SECONDS", 0.2)
    put(store)
    lent, go = threading.Event(), threading.Event()

    def hold() -> None:
        with store._sqlite.lend(60) as (session, _):
            session.run("record_migration", version=999)
            lent.set()
            assert go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert lent.wait(30)
    assert in_child(lambda: expect_refusal(store.count, lambda: put(store))) == 0
    go.set()
    holder.join()
    assert store._sqlite.schema_version() == 999
    assert in_child(lambda: put(store)) == 0
    store.close()


def test_the_end_of_a_refused_child_leaves_the_parents_transaction_alone(tmp_path: Path) -> None:
    """An interpreter closes at its end what it finds; by then that must not be the parent's connection."""
    program = f"""
import os, sys
from leasehold.stores.open import open_store
from tests.backends import put
store = open_store("sqlite:///{tmp_path}/jobs.db")
store.upgrade()
def work(session):
    for version in range(100, 3000):
        session.run("record_migration", version=version)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert session.tuples("schema_version") == [(2999,)]
store._sqlite.transact(work)
put(store)
assert store._sqlite.schema_version() == 2999
store.close()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_a_child_does_not_wait_for_locks_that_threads_of_its_parent_held(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread after the other opens the app, wakes others or starts a run; the child must be able to as well."""
    monkeypatch.setattr("leasehold.stores.sqlite.connections.FORK_SECONDS", 60.0)
    stop = threading.Event()
    with Leasehold(url) as app:

        @app.task
        async def work() -> None: ...

        app.count()

        def busy() -> None:
            while not stop.is_set():
                app.close()
                with contextlib.suppress(DatabaseUnreachable):  # the other thread has closed it
                    work.enqueue()

        def child() -> None:
            end_after(60)
            work.enqueue()
            app.close()
            app.count()

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            assert [in_child(child) for _ in range(10)] == [0] * 10
        finally:
            stop.set()
            for thread in threads:
                thread.join()
