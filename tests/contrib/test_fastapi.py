"""docs/guides/fastapi.md, driven from outside: the page's own apps under uvicorn, on both stores."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from leasehold import Leasehold, State
from tests.backends import Backend
from tests.contrib.guide import PATIENCE, Project, url_in, wait_for

pytestmark = [pytest.mark.slow(8), pytest.mark.one_store("postgres"), pytest.mark.timeout(600)]

DRAINED = (0, -signal.SIGTERM)
"""uvicorn dies of the signal again when it has done everything."""


@pytest.fixture
def project(backend: Backend, tmp_path: Path) -> Project:
    made = Project(tmp_path, {"LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema})
    made.lay_out("guides/fastapi.md")
    return made


@contextmanager
def uvicorn(project: Project, app: str) -> Iterator[tuple[httpx2.Client, subprocess.Popen[bytes], Path]]:
    command = ("-m", "uvicorn", "--port", "0", "--timeout-graceful-shutdown", "5", app)
    with (
        project.starts(*command) as (process, log),
        httpx2.Client(base_url=url_in(log), timeout=PATIENCE) as client,
    ):
        yield client, process, log


def ends(process: subprocess.Popen[bytes], log: Path) -> None:
    process.terminate()
    assert process.wait(PATIENCE) in DRAINED, log.read_text()
    assert "Traceback" not in log.read_text()


def order(client: httpx2.Client, **requested: object) -> str:
    answer = client.post("/reports", params={"customer": "ann", **requested})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


# -- the worker in the server ------------------------------------------------------------------------------------------
def test_a_report_is_ordered_followed_and_fetched_over_http(project):
    with uvicorn(project, "main:api") as (client, process, log):
        quick, slow = order(client), order(client, pages=50)

        def progress() -> bool:
            said = client.get(f"/reports/{slow}")
            assert said.status_code == 202, said.text
            return said.json()["state"] == "running" and said.json()["progress"].endswith(" of 50: pages")

        wait_for(progress)
        done = client.get(f"/reports/{quick}", params={"wait": 30})
        assert (done.status_code, done.json()) == (
            200,
            {"state": "succeeded", "result": "3 pages for ann"},
        )
        assert client.get("/reports/00000000-0000-7000-8000-000000000000").status_code == 404
        assert client.get(f"/reports/{slow}", params={"wait": 31}).status_code == 422
        ends(process, log)


def test_at_sigterm_the_running_job_ends_and_the_next_one_is_left(project, app: Leasehold):
    @app.task(name="report")
    def report(customer: str) -> str: ...

    with uvicorn(project, "main:api") as (client, process, log):
        running = order(client, pages=30)
        wait_for(lambda: app.get(running).progress())  # a job that was only claimed is handed back
        process.terminate()
        wait_for(lambda: "Shutting down" in log.read_text(), log.read_text)
        later = report.enqueue("bob")
        assert process.wait(PATIENCE) in DRAINED, log.read_text()
    ended = app.get(running)
    assert (ended.state, ended.attempt) == (State.SUCCEEDED, 1)
    assert later.refresh().state is State.QUEUED
    assert app.leases().leases == []


AROUND = """
from contextlib import asynccontextmanager
from fastapi import FastAPI, Request
from leasehold.contrib.fastapi import worker_lifespan
from tasks import jobs

opened = []

@jobs.task
def look() -> list[str]:
    return list(opened)

@asynccontextmanager
async def clients(api):
    opened.append(type(api).__name__)
    yield {"region": "eu"}
    # The worker has drained, and the app is closed: it opens again if it is used.
    print("closed with", jobs.leases().leases, jobs.count()["succeeded"], flush=True)

api = FastAPI(lifespan=worker_lifespan(jobs, around=clients))

@api.get("/look")
async def route(request: Request) -> dict:
    job = await look.aenqueue()
    return {"opened": await job.aresult(timeout=60), "region": request.state.region}
"""


def test_a_lifespan_of_the_users_own_is_open_as_long_as_the_worker_works(project):
    (project.folder / "around.py").write_text(AROUND)
    with uvicorn(project, "around:api") as (client, process, log):
        assert client.get("/look").json() == {"opened": ["FastAPI"], "region": "eu"}
        ends(process, log)
        assert "closed with [] 1" in log.read_text()


# -- the API and the dashboard in the user's own app -------------------------------------------------------------------
def test_the_api_is_behind_the_users_own_guard_and_the_dashboard_behind_tokens(project):
    user = {"X-User": "ann"}
    with (
        project.stays("-m", "leasehold", "worker", "tasks:jobs"),
        uvicorn(project, "ops:api") as (client, process, log),
    ):
        call = {"task": "report", "args": {"customer": "bob"}}
        refused = client.post("/jobs/v1/jobs", json=call)
        assert (refused.status_code, refused.json()["detail"]) == (401, "sign in first")
        assert client.get("/jobs/v1/jobs").status_code == 401
        made = client.post("/jobs/v1/jobs", json=call, headers=user)
        assert made.status_code == 201, made.text
        done = client.get(f"/jobs/v1/jobs/{made.json()['id']}/result", params={"wait": 60}, headers=user)
        assert done.json()["result"] == "3 pages for bob"
        # What a proxy has passed on needs a token, whatever the guard says.
        forwarded = client.get("/jobs/v1/jobs", headers={**user, "X-Forwarded-For": "203.0.113.9"})
        assert (forwarded.status_code, forwarded.json()["code"]) == (401, "unauthenticated")
        page = client.get("/ops/")
        assert page.status_code == 303
        assert page.headers["location"].startswith("/ops/sign-in")
        token = project.run("leasehold", "tokens", "create", "ann", "--scope", "read").split()[-1]
        entered = client.post("/ops/sign-in", data={"token": token}, headers={"Origin": str(client.base_url)})
        assert entered.status_code == 303, entered.text
        assert "report" in client.get("/ops/jobs").text
        ends(process, log)


def test_the_pages_own_tests_pass(project):
    assert "1 passed" in project.python("-m", "pytest", "-q", "test_reports.py")
