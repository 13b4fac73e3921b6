"""The file under a running store is deleted, replaced or locked: nothing is acknowledged that is not in it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leasehold import Leasehold
from leasehold.errors import DatabaseDamaged, DatabaseUnreachable
from leasehold.stores.open import open_store
from leasehold.stores.store import JobStore
from tests.backends import new_job, put


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(file: Path) -> Iterator[JobStore]:
    store = open_store(f"sqlite:///{file}")
    store.upgrade()
    put(store)
    yield store
    store.close()


def delete(file: Path) -> None:
    """The file itself first: between the steps nobody may take what is left for a database."""
    for part in ("", "-wal", "-shm"):
        Path(f"{file}{part}").unlink(missing_ok=True)


def replace(file: Path) -> None:
    """As a restore does: a whole database takes its place."""
    other = file.with_name("other.db")
    made = open_store(f"sqlite:///{other}")
    made.upgrade()
    made.close()
    for part in ("-wal", "-shm"):
        Path(f"{file}{part}").unlink(missing_ok=True)
    other.replace(file)


WRITES: list[Callable[[JobStore], object]] = [
    lambda store: store.enqueue([new_job()]),
    lambda store: store.claim("worker", ["default"], 1),
    lambda store: store.count(),
]


@pytest.mark.parametrize("use", WRITES, ids=["enqueue", "claim", "read"])
def test_a_deleted_file_is_told_and_not_made_anew(store: JobStore, file: Path, use) -> None:
    delete(file)
    for _ in range(2):
        with pytest.raises(DatabaseUnreachable, match="was deleted under this process"):
            use(store)
    with pytest.raises(DatabaseUnreachable):
        store.another()
    assert not file.exists()


@pytest.mark.parametrize("use", WRITES, ids=["enqueue", "claim", "read"])
def test_a_replaced_file_is_told_once_and_then_used(store: JobStore, file: Path, use) -> None:
    replace(file)
    with pytest.raises(DatabaseUnreachable, match="was replaced under this process"):
        use(store)
    assert store.count()["queued"] == 0
    # What the store remembers of the old file is not believed of the new one.
    (made,) = store.enqueue([new_job()])
    assert [grant.id for grant in store.claim("worker", ["default"], 5)] == [made.id]
    with closing(open_store(f"sqlite:///{file}")) as fresh:
        assert fresh.get(made.id).state == "running"


def test_a_file_that_is_put_back_is_used_again(store: JobStore, file: Path) -> None:
    with closing(sqlite3.connect(file)) as other, closing(sqlite3.connect(f"{file}.kept")) as kept:
        other.backup(kept)
    delete(file)
    with pytest.raises(DatabaseUnreachable):
        store.count()
    Path(f"{file}.kept").rename(file)
    assert store.count()["queued"] == 1
    assert put(store).state == "queued"


def damage(file: Path) -> None:
    """Overwrite the file in place, its log too, as a failing disk or a wrong `dd` does."""
    for part in ("", "-wal", "-shm"):
        path = Path(f"{file}{part}")
        if path.exists():
            with path.open("r+b") as open_file:
                open_file.write(b"garbage!" * (max(path.stat().st_size, 4096) // 8))


@pytest.mark.parametrize("opened", ["before", "after"])
@pytest.mark.parametrize("use", WRITES, ids=["enqueue", "claim", "read"])
def test_a_damaged_file_is_an_error_of_the_store_that_names_the_file_and_the_remedy(
    store: JobStore, file: Path, use, opened: str
) -> None:
    def use_it() -> None:
        if opened == "before":
            use(store)
        with closing(open_store(f"sqlite:///{file}")) as fresh:
            use(fresh)

    damage(file)
    with pytest.raises(DatabaseDamaged, match=r"jobs\.db is damaged: .*restore it from a backup"):
        use_it()


def test_a_transaction_of_a_handler_is_not_acknowledged_in_a_file_that_is_gone(
    store: JobStore, file: Path
) -> None:
    def write() -> None:
        with store._sqlite.lend(30) as (_, connection):  # type: ignore[attr-defined]
            connection.execute("CREATE TABLE mine (n)")
            replace(file)

    with pytest.raises(DatabaseUnreachable, match="was replaced"):
        write()


def test_a_program_that_changes_its_folder_keeps_its_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_store("sqlite:///jobs.db")) as store:
        store.upgrade()
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        put(store)
        assert store.count()["queued"] == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["jobs.db"]


def test_a_worker_on_a_deleted_file_says_so_and_goes_on_when_it_is_there_again(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = Leasehold(f"sqlite:///{file}")

    @app.task
    async def work() -> str:
        return "done"

    app.count()

    async def until(true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not true():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    async def live() -> None:
        async with app.worker(concurrency=1, poll=0.05) as worker:
            await until(lambda: worker.health().ok)
            delete(file)
            await until(lambda: not worker.health().ok)
            assert "deleted under this process" in " ".join(worker.health().problems)
            assert not file.exists()
            with Leasehold(f"sqlite:///{file}") as other:
                other.count()
            await until(lambda: worker.health().ok)
            made = await work.aenqueue()
            assert await made.aresult(30) == "done"

    asyncio.run(live())
    app.close()
    assert any("deleted under this process" in record.getMessage() for record in caplog.records)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux shows who has a file open")
def test_a_locked_file_says_who_may_hold_it(
    store: JobStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
        " print('held', flush=True); sys.stdin.read()"
    )
    monkeypatch.setattr("leasehold.stores.sqlite.database.BUSY_SECONDS", 0.0)
    monkeypatch.setattr("leasehold.stores.sqlite.connections.BUSY_SECONDS", 0.0)
    with (
        closing(store.another()) as impatient,
        subprocess.Popen(
            [sys.executable, "-c", program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder,
    ):
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DatabaseUnreachable, match="locked") as refusal:
            put(impatient)
        holder.stdin.close()
    assert f"{holder.pid} ({sys.executable} -c import sqlite3" in str(refusal.value)
    assert f"{os.getpid()} (this one)" in str(refusal.value)
    assert "tx=" not in str(refusal.value)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux shows who has a file open")
def test_an_enqueue_beside_the_callers_own_transaction_leads_to_tx(
    store: JobStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.stores.sqlite.database.BUSY_SECONDS", 0.0)
    with Leasehold(f"sqlite:///{file}") as app, closing(sqlite3.connect(file)) as connection:

        @app.task
        def ship() -> None: ...

        connection.execute("CREATE TABLE orders (id integer)")
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(DatabaseUnreachable, match=r"this process itself has locked it: .*tx=connection"):
            ship.enqueue()
        ship.using(tx=connection).enqueue()
        connection.commit()
        assert app.count()["queued"] == 2


def test_a_first_enqueue_inside_the_callers_own_transaction_says_what_to_do_before(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our tables cannot be made in a new file that the caller's own transaction has locked."""
    monkeypatch.setattr("leasehold.stores.sqlite.database.BUSY_SECONDS", 0.0)
    monkeypatch.setattr("leasehold.stores.sqlite.connections.BUSY_SECONDS", 0.0)
    with Leasehold(f"sqlite:///{file}") as app, closing(sqlite3.connect(file)) as connection:

        @app.task
        def ship(order: int) -> None: ...

        connection.execute("CREATE TABLE orders (id integer)")
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(DatabaseUnreachable, match=r"locked.*call app\.upgrade\(\)"):
            ship.using(tx=connection).enqueue(1)
        connection.commit()
        app.upgrade()
        ship.using(tx=connection).enqueue(1)
        connection.commit()
        assert app.count()["queued"] == 1


LOOKS = 100


def test_who_waits_for_the_lock_looks_often(store: JobStore, file: Path) -> None:
    """Writers that let go of it for a moment only must not keep it from others for ever."""
    requested: list[str] = []
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as holder:

        def trace(statement: str) -> None:
            requested.append(statement)
            if len(requested) == LOOKS:
                holder.execute("ROLLBACK")

        job = new_job()
        writer = store._sqlite._file.writer()  # type: ignore[attr-defined]
        holder.execute("BEGIN IMMEDIATE")
        writer.set_trace_callback(trace)
        store.enqueue([job])
        writer.set_trace_callback(None)
    assert requested[:LOOKS] == ["BEGIN IMMEDIATE"] * LOOKS
    assert store.get(job.id).id == job.id
