"""What type checkers say of code that uses Leasehold: to users who pass settings on, and to receivers of webhooks."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from leasehold import Job, Leasehold
from leasehold.threads import aio
from leasehold.types import WorkerOptions
from leasehold.worker.settings import WorkerSettings

GOOD = """
from email.message import Message
from typing import Unpack
from leasehold import Context, Job, Leasehold, Rate, Retry, Worker
from leasehold.contrib.fastapi import worker_lifespan
from leasehold.testing import OpenSandbox, Sandbox
from leasehold.types import TaskOptions, WorkerOptions
from leasehold.webhooks import verify

app = Leasehold()
COMMON: TaskOptions = {"queue": "documents", "retry": Retry(max_attempts=4)}

@app.task(**COMMON)
async def split(ctx: Context, text: str) -> int:
    return len(text)

@app.task(**COMMON | TaskOptions(rate=Rate("llm", "60/min"), lane="{text}"))
async def ask(ctx: Context, text: str) -> str:
    return text

jobs: tuple[Job[int], Job[str]] = (split.enqueue("a"), ask.enqueue("b"))

def receive(headers: Message, body: bytes) -> object:  # those of http.server
    return verify(headers, body, "secret")["type"]

def serve(**settings: Unpack[WorkerOptions]) -> Worker:
    return app.worker(**settings)

worker = app.worker(queues="documents", stop_grace=5, poll=0.5)
lifespan = worker_lifespan(app, concurrency=5, shutdown_grace="20s", sweep=1)

def box(leasehold_sandbox: OpenSandbox) -> Sandbox:
    return leasehold_sandbox(app, url="sqlite:///test.db")
"""

WRONG = """
app.worker(quues="documents")
app.worker(poll="often")
worker_lifespan(app, concurency=5)
@app.task(**COMMON | TaskOptions(lanes="x"))
def report() -> None: ...
"""


ASYNC_NAMES = """
from typing import Protocol, assert_type
from leasehold import Job, Leasehold
from leasehold.types import BudgetLine, BulkReport, HistoryEntry, Page, PauseRecord, ScheduleRow, SlotRow, StopReport

class Mine(Job[int]):
    pass

class Cancels(Protocol):
    async def acancel(self, reason: str | None = None, *, actor: str | None = None) -> object: ...

class CancelsByNumber(Protocol):
    async def acancel(self, reason: int) -> object: ...

def fits(job: Job[int]) -> Cancels:
    return job

async def use(app: Leasehold, job: Job[int], mine: Mine) -> None:
    assert_type(await job.acancel("why", actor="me"), Job[int])
    assert_type(await mine.acancel(), Mine)
    assert_type(await job.aresume(args={"a": 1}, fresh=True), Job[int])
    assert_type(await job.aretry(), Job[int])
    assert_type(await job.aresult(timeout=1), int)
    assert_type(await job.ahistory(), list[HistoryEntry])
    assert_type(await job.atop_up(tokens=5, actor="me"), list[BudgetLine])
    assert_type(await app.group("g").abudget(tokens=None), list[BudgetLine])
    assert_type(await app.group("g").astop(["report"], mode="immediate"), StopReport)
    assert_type(await app.ajobs(state="failed", queue="mail", limit=5), Page)
    assert_type(await app.bulk.acancel(queue="mail", reason="why", dry_run=True), BulkReport)
    assert_type(await app.queues.apause("mail", for_="1h", reason="why"), PauseRecord)
    assert_type(await app.slots.alist(), list[SlotRow])
    assert_type(await app.schedules.aset("nightly", "report", {"day": 1}, cron="0 3 * * *"), ScheduleRow)
    assert_type(await app.tenants.acreate("acme"), bool)
"""

WRONG_ASYNC_NAMES = """
async def misuse(app: Leasehold, job: Job[int]) -> None:
    await job.acancel(reson="why")
    await job.acancel(reason=1)
    await job.aresume({"a": 1})
    await app.bulk.acancel(queu="mail")
    await app.queues.apause("mail", for_=["1h"])
    await job.atop_up(tokens="5")
    by_number: CancelsByNumber = job
"""


OPERATOR = """
from typing import assert_type
from leasehold.domain.job import Job
from leasehold.domain.records import HistoryEntry, Page, PauseRecord
from leasehold.operations import jobs, limits, queues
from leasehold.operations.local import Operator
from leasehold.operations.operations import Operations
from leasehold.remote.operator import RemoteOperator

def both_are_operators(local: Operations, remote: RemoteOperator) -> list[Operator]:
    return [local, remote]

def use(operator: Operator) -> None:
    assert_type(operator.call(jobs.cancel, "id", reason="why", actor="me"), Job)
    assert_type(operator.call(jobs.resume, "id", args={"a": 1}, fresh=True), Job)
    assert_type(operator.call(queues.pause_queue, "q", for_="1h"), PauseRecord)
    assert_type(operator.call(jobs.list_jobs, queue="q", limit=3), Page)
    assert_type(operator.call(jobs.history, job_id="id"), list[HistoryEntry])
    operator.call(limits.set_slot, "s", 3)
"""

WRONG_CALLS = """
def misuse(operator: Operator) -> None:
    operator.call(jobs.cancel)
    operator.call(jobs.cancel, "id", reason=3)
    operator.call(jobs.cancel, "id", resaon="why")
    operator.call(jobs.resume, "id", {"a": 1})
    operator.call(limits.set_slot, "s", "3")
    operator.call("job.cancel", "id")
"""


CHECKERS = {
    "mypy": ["mypy", "--strict", "--cache-dir", "cache"],
    "pyright": ["basedpyright", "--pythonpath", sys.executable],
}
checked_by = pytest.mark.parametrize("checker", CHECKERS)


def wrong_lines(checker: str, folder: Path, source: str) -> tuple[list[int], str]:
    """The numbers of the lines that a checker reports in a user's project, and its report."""
    (folder / "use.py").write_text(source)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", *CHECKERS[checker], "use.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return sorted({int(line) for line in re.findall(r"use\.py:(\d+):.* error:? ", done.stdout)}), done.stdout


@pytest.mark.slow
@checked_by
@pytest.mark.parametrize(
    ("good", "wrong_calls"),
    [
        pytest.param(ASYNC_NAMES, WRONG_ASYNC_NAMES, id="async names"),
        pytest.param(OPERATOR, WRONG_CALLS, id="verbs"),
    ],
)
def test_a_type_checker_knows_the_signatures_of_what_is_derived(
    tmp_path: Path, checker: str, good: str, wrong_calls: str
):
    wrong, reported = wrong_lines(checker, tmp_path, good + wrong_calls)
    first = good.count("\n") + 3
    assert wrong == list(range(first, first + wrong_calls.count("\n") - 2)), reported


def test_an_async_name_looks_like_its_method():
    assert str(inspect.signature(Job.acancel)) == str(inspect.signature(Job.cancel))
    assert (Job.acancel.__name__, Job.acancel.__qualname__) == ("acancel", "Job.acancel")
    assert Job.acancel.__doc__ == Job.cancel.__doc__
    assert inspect.iscoroutinefunction(Job.acancel)


def test_an_overridden_method_is_the_one_that_its_async_name_calls():
    class Base:
        def name(self, suffix: str = "") -> str:
            return f"base{suffix}"

        aname = aio(name)

    class Other(Base):
        def name(self, suffix: str = "") -> str:
            return f"other{suffix}"

    assert asyncio.run(Base().aname()) == "base"
    assert asyncio.run(Other().aname(suffix="!")) == "other!"


def test_what_yields_or_is_awaited_needs_an_async_method_of_its_own():
    def watch(self: object) -> Iterator[int]:
        yield 1

    async def wait(self: object) -> int:
        return 1

    async def awatch(self: object) -> AsyncIterator[int]:
        yield 1

    for method in (watch, wait, awatch):
        with pytest.raises(TypeError, match="by hand"):
            aio(method)


@pytest.mark.slow
@checked_by
def test_a_type_checker_accepts_shared_settings_and_refuses_wrong_ones(tmp_path: Path, checker: str):
    wrong, reported = wrong_lines(checker, tmp_path, GOOD + WRONG)
    first = GOOD.count("\n") + 2
    assert wrong == [first, first + 1, first + 2, first + 3], reported


def test_the_typed_settings_of_a_worker_are_those_it_takes():
    typed = set(WorkerOptions.__annotations__)
    assert typed == {field.name for field in fields(WorkerSettings)}
    named = inspect.signature(Leasehold.worker).parameters.values()
    assert {one.name for one in named if one.kind is one.KEYWORD_ONLY} <= typed
