"""The processes of this application, and the official MCP client: what the show and the tests drive it with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.ports import claim_port

ROOT = Path(__file__).parents[2]
PATIENCE = 150.0


@contextlib.contextmanager
def loopback_web(**environment: str) -> Iterator[str]:
    """The web as a process of its own; gives its address."""
    command = [sys.executable, "-m", "examples.research_agent.loopback_web"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    ) as web:
        assert web.stdout is not None
        try:
            yield web.stdout.readline().strip()
        finally:
            web.kill()


def hits(web: str) -> dict[str, int]:
    """How often each address of the web was asked for."""
    told: dict[str, int] = _ask_web(f"{web}/hits")
    return told


def load(web: str) -> dict[str, Any]:
    """When each host was asked, and how many visitors slow places had at once."""
    told: dict[str, Any] = _ask_web(f"{web}/load")
    return told


def _ask_web(address: str) -> Any:
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


class ServerProcess:
    """The MCP server over HTTP. It can be killed and started again, on the same port and the same database."""

    def __init__(self, database_url: str, web: str, **environment: str) -> None:
        self._port = claim_port()
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self.environment = {
            **os.environ,
            "LEASEHOLD_URL": database_url,
            "RESEARCH_PROXY": web,
            "RESEARCH_LEASE": "2s",
            "RESEARCH_SWEEP": "0.5",
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "examples.research_agent", "--port", str(self._port)]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start: exit code {self._process.poll()}")

    def kill(self) -> None:
        """SIGKILL: it has no chance to say goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it drains."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Agent:
    """A caller of the tools: plain answers, and an exception for an error."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self._client.call_tool(tool, arguments)
        if answer.is_error or answer.structured_content is None:
            raise RuntimeError(f"{tool}: {answer.content}")
        told: dict[str, Any] = answer.structured_content
        return told

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool.input_schema for tool in (await self._client.list_tools()).tools}

    async def rows(self, sql: str) -> list[list[Any]]:
        rows: list[list[Any]] = (await self.call("query_sql", sql=sql))["rows"]
        return rows

    async def follow(self, task_id: str, until: Any, patience: float = PATIENCE) -> list[dict[str, Any]]:
        """Long polling: every answer up to the first for which `until` holds."""
        answers = [await self.call("get_status", task_id=task_id)]
        end = time.monotonic() + patience
        while not until(answers[-1]):
            if time.monotonic() > end:
                raise TimeoutError(f"still {answers[-1]}")
            answers.append(
                await self.call("get_status", task_id=task_id, wait=20, since=answers[-1]["version"])
            )
        return answers

    async def until(self, task_id: str, holds: Any) -> dict[str, Any]:
        """For what wakes nobody, such as the start of a job: ask again and again."""
        async with asyncio.timeout(PATIENCE):
            while not holds(told := await self.call("get_status", task_id=task_id)):
                await asyncio.sleep(0.1)
        return told

    async def finish(self, task_id: str, patience: float = PATIENCE) -> dict[str, Any]:
        return (await self.follow(task_id, lambda told: told["live"] == 0, patience))[-1]

    async def solve(self, item: dict[str, str]) -> None:
        """As a human would: read the puzzle, and answer it."""
        a, b = re.findall(r"\d+", item["challenge"])
        await self.call(
            "resolve_auth", job_id=item["job_id"], domain=item["domain"], solution=str(int(a) + int(b))
        )


@contextlib.asynccontextmanager
async def agent_at(url: str) -> AsyncIterator[Agent]:
    async with (
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield Agent(client)
