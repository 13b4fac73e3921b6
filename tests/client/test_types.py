"""What a type checker says of code that uses Leasehold: to users who pass settings on, and to receivers of webhooks."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields

import pytest

from leasehold import Leasehold
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


@pytest.mark.slow
def test_a_type_checker_accepts_shared_settings_and_refuses_wrong_ones(tmp_path):
    file = tmp_path / "use.py"
    file.write_text(GOOD + WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    wrong = [int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line]
    first = GOOD.count("\n") + 2
    assert wrong == [first, first + 1, first + 2, first + 3], told


def test_the_typed_settings_of_a_worker_are_those_it_takes():
    typed = set(WorkerOptions.__annotations__)
    assert typed == {field.name for field in fields(WorkerSettings)}
    named = inspect.signature(Leasehold.worker).parameters.values()
    assert {one.name for one in named if one.kind is one.KEYWORD_ONLY} <= typed
