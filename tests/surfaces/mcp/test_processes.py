"""The server as a process: over stdio as clients start it, killed and started again, and beside a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from leasehold import Leasehold
from tests.backends import Backend
from tests.launcher import launch
from tests.surfaces.cli.conftest import Cli, stop
from tests.surfaces.http.test_serve import url_of
from tests.surfaces.mcp.clients import Created, Following, over_http

ROOT = Path(__file__).parents[3]
APP = "tests.surfaces.mcp.mcp_tasks:app"


def environment(backend: Backend) -> dict[str, str]:
    return {**os.environ, "LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema}


def over_stdio(backend: Backend, *flags: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "leasehold", "mcp", APP, *flags],
        env=environment(backend),
        cwd=str(ROOT),
    )


@pytest.fixture
def cli(backend: Backend):
    made = Cli(ROOT, environment(backend))
    yield made
    made.end()


def test_a_client_over_stdio_calls_and_follows_tasks(app: Leasehold, backend: Backend):
    async def run() -> None:
        following = Following(lambda key, requested: {"action": "accept", "content": {"confirm": True}})
        parameters = over_stdio(backend, "--with-worker")
        async with Client(stdio_client(parameters), extensions=[following]) as client:
            answer = await client.call_tool("confirm_delete", {"filename": "f"})
            assert answer.content[0].text == "deleted f"
            assert "input_required" in following.seen

    asyncio.run(run())


def test_over_stdio_a_client_may_do_what_its_scopes_say(app: Leasehold, backend: Backend):
    async def run() -> None:
        async with Client(stdio_client(over_stdio(backend, "--scope", "read"))) as client:
            shown = {tool.name for tool in (await client.list_tools()).tools}
            assert "get_job" in shown
            assert shown.isdisjoint({"enqueue_job", "stop_job", "greet"})

    asyncio.run(run())


@pytest.mark.parametrize("ending", ["eof", "signal"])
def test_when_the_client_goes_the_worker_hands_back_its_jobs(app: Leasehold, backend: Backend, ending: str):
    job = app.enqueue("slow_compute", {"seconds": 600})
    process = launch(
        [sys.executable, "-m", "leasehold", "mcp", APP, "--with-worker"],
        cwd=ROOT,
        env={**environment(backend), "SHUTDOWN_GRACE_PERIOD_SECONDS": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            deadline = time.monotonic() + 60
            while job.refresh().state != "running":
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if ending == "eof":
                assert process.stdin is not None
                process.stdin.close()
            else:
                process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert job.refresh().state == "queued"


@pytest.mark.slow(6)
@pytest.mark.one_store("postgres")
def test_a_task_outlives_the_server_that_made_it(app: Leasehold, cli: Cli):
    """Killed in the middle of the run, and started again: the same handle, and the result."""

    async def begin(url: str) -> str:
        async with over_http(url, extensions=[Following()]) as client:
            made = await client.session.call_tool("confirm_delete", {"filename": "f"}, allow_claimed=True)
            assert isinstance(made, Created)
            return made.task_id

    async def follow(url: str, task: str) -> str:
        following = Following(lambda key, requested: {"action": "accept", "content": {"confirm": True}})
        async with over_http(url, extensions=[following]) as client:
            result = await following.follow(task, client.session)
            return str(result.content[0].text)

    serve = ("serve", APP, "--port", "0", "--mcp", "--with-worker")
    doomed = cli.start(*serve)
    task = asyncio.run(begin(url_of(doomed)))
    doomed.kill()
    doomed.wait(20)
    process = cli.start(*serve)
    assert asyncio.run(follow(url_of(process), task)) == "deleted f"
    assert stop(process)[0] == 0


@pytest.mark.slow(5)
@pytest.mark.one_store("sqlite")
def test_a_client_of_another_make_follows_a_task(app: Leasehold, cli: Cli):
    """fastmcp's, over HTTP."""
    from fastmcp import Client as FastClient
    from fastmcp_tasks.client import call_tool_task

    process = cli.start("serve", APP, "--port", "0", "--mcp", "--with-worker")
    url = url_of(process)

    async def run() -> None:
        async with FastClient(f"{url}/mcp") as client:
            answer = await client.call_tool("greet", {"name": "Ada"})
            assert answer.content[0].text == "Hello, Ada!"
            task = await call_tool_task(client, "slow_compute", {"label": "x"})
            result = await task.result()
            assert result.structured_content["result"] == {"label": "x"}

    asyncio.run(run())
    assert stop(process)[0] == 0


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("knows_tasks", [True, False])
def test_a_job_that_takes_longer_than_any_call_is_followed_to_its_end(
    app: Leasehold, cli: Cli, knows_tasks: bool
):
    """Clients give up on a call after a minute."""
    process = cli.start("serve", APP, "--port", "0", "--mcp", "--with-worker")
    long = {"seconds": 75, "label": "long"}

    async def run() -> None:
        url = url_of(process)
        if knows_tasks:
            async with over_http(url, extensions=[Following()]) as client:
                answer = await client.call_tool("slow_compute", long)
                assert answer.structured_content["result"] == {"label": "long"}
            return
        async with over_http(url) as client:
            answer = await client.call_tool("slow_compute", long)
            job = {"id": answer.structured_content["job_id"], "next_poll_s": 1.0}
            while job["next_poll_s"] is not None:
                requested = await client.call_tool("get_job", {"id": job["id"], "wait_s": 50})
                job = requested.structured_content
            assert job["result"] == {"label": "long"}

    asyncio.run(run())
    assert stop(process)[0] == 0
