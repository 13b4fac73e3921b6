"""Results as files, as handlers and callers see them, in a worker inside this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold import Context, Leasehold, State, SyncContext
from leasehold.domain.checks.payload import LARGEST
from leasehold.errors import InvalidInput, ResultMissing
from leasehold.stores.verbs import results
from tests.workers import burst

LARGE = "x" * (LARGEST + 1)
DIGITS = "1" * 2 * LARGEST


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def app_settings(folder: Path) -> dict[str, Any]:
    return {"results": folder}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.json"))


def test_what_is_too_large_for_its_row_becomes_a_file_by_itself(app, folder):
    @app.task
    async def on_loop(size: int) -> str:
        return "x" * size

    @app.task
    def in_thread(size: int) -> list[str]:
        return ["y" * size]

    small, large, listed = on_loop.enqueue(10), on_loop.enqueue(5_000_000), in_thread.enqueue(5_000_000)
    burst(app)
    assert (small.result(0), small.result_ref) == ("x" * 10, None)
    assert large.result(0) == "x" * 5_000_000
    assert listed.result(0) == ["y" * 5_000_000]
    assert asyncio.run(large.aresult(0)) == "x" * 5_000_000
    assert files(folder) == sorted([f"{large.id}.1.json", f"{listed.id}.1.json"])
    assert large.result_ref == f"{large.id}.1.json"


def test_a_task_or_a_call_may_ask_for_a_file(app, folder):
    @app.task(result="file")
    def filed() -> int:
        return 1

    @app.task
    def plain() -> int:
        return 2

    jobs = [
        filed.enqueue(),
        filed.using(result="row").enqueue(),
        plain.enqueue(),
        plain.using(result="file").enqueue(),
    ]
    burst(app)
    assert [job.result(0) for job in jobs] == [1, 1, 2, 2]
    assert [job.result_ref is None for job in jobs] == [False, True, True, False]


def test_complete_keeps_its_result_as_a_file(app):
    @app.task(result="file")
    async def on_loop(ctx: Context) -> str:
        async with ctx.complete("a"):
            pass
        return "ignored"

    @app.task
    def in_thread(ctx: SyncContext) -> str:
        with ctx.complete(LARGE):
            pass
        return "ignored"

    jobs = [on_loop.enqueue(), in_thread.enqueue()]
    burst(app)
    assert [job.result(0) for job in jobs] == ["a", LARGE]
    assert [job.result_ref for job in jobs] == [f"{job.id}.1.json" for job in jobs]


def test_those_who_waited_for_it_and_its_group_read_it(app, folder):
    @app.task(result="file")
    def parent() -> dict[str, int]:
        return {"n": 1}

    @app.task
    async def child(ctx: Context) -> list[int]:
        return [one["n"] for one in (await ctx.results()).values()]

    first = parent.using(group="g").enqueue()
    second = child.using(after=[first]).enqueue()
    burst(app)
    assert second.result(0) == [1]
    (found,) = app.group("g").status().results
    assert (found.result, found.result_ref) == ({"n": 1}, f"{first.id}.1.json")


def test_a_file_that_is_gone_does_not_hide_the_rest_of_its_group(app, folder):
    @app.task(result="file")
    def work() -> int:
        return 1

    job = work.using(group="g").enqueue()
    burst(app)
    for path in folder.rglob("*.json"):
        path.unlink()
    with pytest.raises(ResultMissing, match="LEASEHOLD_RESULTS"):
        job.result(0)
    status = app.group("g").status()
    assert status.succeeded == 1
    with pytest.raises(ResultMissing):
        _ = status.results[0].result


def test_a_large_write_does_not_block_the_loop(app, monkeypatch):
    """Otherwise nothing on the loop could end the wait, and the worker would hang."""
    go_on = threading.Event()
    real = results.ResultFiles.write

    def slow(self, job_id, token, text):
        assert go_on.wait(20), "the loop stood still"
        return real(self, job_id, token, text)

    monkeypatch.setattr(results.ResultFiles, "write", slow)

    @app.task(result="file")
    async def large() -> str:
        return LARGE

    @app.task
    async def other() -> None:
        go_on.set()

    job = large.enqueue()
    other.using(delay=0.2).enqueue()
    burst(app, poll=0.1)
    assert job.result(0) == LARGE


@pytest.fixture
def bare(backend, monkeypatch) -> Iterator[Leasehold]:
    """An app without a folder."""
    monkeypatch.delenv("LEASEHOLD_RESULTS", raising=False)
    with Leasehold(backend.url, schema=backend.schema) as app:
        yield app


def test_without_a_folder_a_large_result_is_kept_in_the_database(bare, tmp_path):
    @bare.task
    async def on_loop(size: int) -> str:
        return "x" * size

    @bare.task
    def in_thread(size: int) -> list[str]:
        return ["y" * size]

    @bare.task
    async def completed(ctx: Context) -> str:
        async with ctx.complete(LARGE):
            pass
        return "ignored"

    @bare.command()
    def outside() -> list[str]:
        script = f"printf '\"'; head -c {len(DIGITS)} /dev/zero | tr '\\0' 1; printf '\"'"
        return ["sh", "-c", f"({script}) > $LEASEHOLD_RESULT"]

    @bare.task
    async def child(ctx: Context) -> list[int]:
        return [len(one) for one in (await ctx.results()).values()]

    small = on_loop.using(group="g").enqueue(10)
    parent = on_loop.using(group="g").enqueue(5_000_000)
    jobs = [parent, in_thread.enqueue(5_000_000), completed.enqueue(), outside.enqueue()]
    later = child.using(after=[parent]).enqueue()
    burst(bare)
    assert [job.result(0) for job in jobs] == ["x" * 5_000_000, ["y" * 5_000_000], LARGE, DIGITS]
    assert asyncio.run(parent.aresult(0)) == "x" * 5_000_000
    assert {job.result_ref for job in jobs} == {"database:1.1"}
    assert small.refresh().result_ref is None
    assert later.result(0) == [5_000_000]
    assert {one.id: len(one.result) for one in bare.group("g").status().results} == {
        small.id: 10,
        parent.id: 5_000_000,
    }
    assert files(tmp_path) == []


def test_what_the_database_does_not_take_fails_with_the_remedy_or_is_beside_the_file(bare, backend, tmp_path):
    began = []

    @bare.task
    def work(size: int = 1) -> str:
        began.append(size)
        return "x" * size

    requested, huge = work.using(result="file").enqueue(), work.enqueue(16 * LARGEST)
    burst(bare)
    if backend.name == "sqlite":
        assert files(tmp_path) == sorted([f"{requested.id}.1.json", f"{huge.id}.1.json"])
        assert len(huge.result(0)) == 16 * LARGEST
        return
    assert began == [16 * LARGEST], "what asks for a file is refused before it begins"
    for job in (requested, huge):
        assert job.refresh().state is State.FAILED
        assert "LEASEHOLD_RESULTS" in (job.error or "")

    @bare.task(result="file")
    def filed() -> None: ...

    with pytest.raises(InvalidInput, match="LEASEHOLD_RESULTS"):
        burst(bare)


def test_a_wrong_choice_is_refused(app):
    with pytest.raises(InvalidInput, match="'row' or 'file'"):

        @app.task(result="disk")
        def work() -> None: ...
