"""Who may ask: every tool and every method refuses whoever has no business there."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import psycopg
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.routing import Mount

from leasehold import Leasehold
from leasehold.mcp import McpApp
from leasehold.surfaces.mcp.tools import TOOLS
from tests.backends import Backend, new_job
from tests.surfaces.http.conftest import Server
from tests.surfaces.mcp.clients import Following, over_http

ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
GIVEN: dict[str, dict[str, Any]] = {
    "list_tasks": {},
    "enqueue_job": {"task": "greet", "args": {"name": "x"}},
    "get_job": {"id": "{id}"},
    "list_jobs": {},
    "explain_job": {"id": "{id}"},
    "stop_job": {"id": "{id}"},
    "resume_job": {"id": "{id}"},
    "list_questions": {},
    "answer_question": {"id": "{id}", "key": "k", "value": 1},
    "group_status": {"group": "g"},
    "stop_group": {"group": "g"},
}
"""Arguments with which each tool would do its work."""


def post(server: Server, **headers: str) -> int:
    sent = {"Accept": "application/json, text/event-stream", **headers}
    return httpx2.post(f"{server.url}/mcp/", json=ASKED, headers=sent, timeout=30).status_code


def test_nothing_is_answered_without_a_token_that_counts(server: Server):
    assert post(server) == 401
    assert post(server, Authorization="Bearer lh_nonsense") == 401
    assert post(server, Authorization="Basic x") == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_foreign_hosts_and_origins_are_refused_whatever_the_token(
    server: Server, headers: dict[str, str], status: int
):
    token = server.token("admin")
    assert post(server, Authorization=f"Bearer {token}", **headers) == status


def with_token(
    server: Server, work: Any, *scopes: str, headers: dict[str, str] | None = None, **more: Any
) -> None:
    async def run() -> None:
        token = server.token(*scopes, **more)
        async with over_http(server.url, token, headers=headers, extensions=[Following()]) as client:
            await work(client)

    asyncio.run(run())


def arguments(name: str, id: str) -> dict[str, Any]:
    """A tool that is not in the table fails whoever walks."""
    return {key: id if value == "{id}" else value for key, value in GIVEN[name].items()}


@pytest.mark.parametrize("scope", ["read", "enqueue", "operate"])
def test_every_tool_needs_its_scope_and_is_not_even_shown_without(app: Leasehold, server: Server, scope: str):
    id = app.enqueue("slow_compute", {}).id

    async def work(client: Client) -> None:
        shown = {tool.name for tool in (await client.list_tools()).tools}
        for name, tool in TOOLS.items():
            assert (name in shown) is (tool.scope == scope), name
            if tool.scope == scope:
                continue
            answer = await client.call_tool(name, arguments(name, id))
            assert answer.is_error, name
            assert "scope" in answer.content[0].text, name
        assert ("slow_compute" in shown) is (scope == "enqueue")
        if scope != "enqueue":
            with pytest.raises(MCPError, match="no tool"):
                await client.call_tool("slow_compute", {})

    with_token(server, work, scope)
    assert app.get(id).state == "queued"


def test_a_token_of_other_queues_finds_nothing_here(app: Leasehold, server: Server):
    id = app.enqueue("slow_compute", {}).id

    async def work(client: Client) -> None:
        shown = {tool.name for tool in (await client.list_tools()).tools}
        assert "use_key" in shown
        assert "slow_compute" not in shown
        listed = await client.call_tool("list_jobs", {})
        assert listed.structured_content["jobs"] == []
        tasks = await client.call_tool("list_tasks", {})
        assert [task["name"] for task in tasks.structured_content["tasks"]] == ["use_key"]
        for name in TOOLS.keys() - {"list_jobs", "list_tasks", "list_questions"}:
            answer = await client.call_tool(name, arguments(name, id))
            assert answer.is_error, name

    with_token(server, work, "admin", queues=["agents"])
    assert app.get(id).state == "queued"


@pytest.fixture
def acme(app: Leasehold) -> Iterator[None]:
    """Its schema is in the database that all tests share, so it goes with the test."""
    app.tenants.create("acme")
    yield
    app.tenants.drop("acme")


def test_a_foreign_tenants_token_finds_nothing_here(app: Leasehold, acme: None, server: Server):
    id = app.enqueue("slow_compute", {}).id

    async def work(client: Client) -> None:
        for name in ("get_job", "explain_job", "stop_job", "resume_job", "answer_question"):
            answer = await client.call_tool(name, arguments(name, id))
            assert answer.is_error, name
        listed = await client.call_tool("list_jobs", {})
        assert listed.structured_content["jobs"] == []
        made = await client.call_tool("enqueue_job", GIVEN["enqueue_job"])
        assert app.tenant("acme").get(made.structured_content["id"]).state == "queued"

    with_token(server, work, "admin", tenants=["acme"])
    assert [job.id for job in app.jobs().jobs] == [id]
    token = server.token("admin", tenants=["acme"])
    assert post(server, Authorization=f"Bearer {token}", **{"Leasehold-Tenant": "other"}) == 404


def test_a_body_that_is_too_large_is_not_read(server: Server):
    token = server.token("admin")
    body = b"[" + b"1," * (3 * 1024 * 1024) + b"1]"
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    assert httpx2.post(f"{server.url}/mcp/", content=body, headers=headers, timeout=30).status_code == 413


def test_who_sends_a_body_that_is_refused_reads_why(server: Server):
    """As most clients do: they send all of it, and only then read the answer."""
    for token, status in ((server.token("admin"), 413), ("lh_unknown", 401)):
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Connection": "close",
        }
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", "/mcp/", b" " * 20_000_000, headers)
            assert connection.getresponse().status == status


def test_who_asks_too_often_is_told_when_to_come_back(app: Leasehold, listen: Any):
    mcp = McpApp(app, rate_limit=1)
    server = listen(Starlette(routes=[Mount("/mcp", mcp)], lifespan=lambda _: mcp.running()))
    token = server.token("read")
    answers = [post(server, Authorization=f"Bearer {token}") for _ in range(10)]
    assert 429 in answers


def test_a_read_that_takes_too_long_is_given_up(
    app: Leasehold, backend: Backend, listen: Callable[[Starlette], Server]
):
    app.__internals__.store.enqueue([new_job(group=f"g{n}") for n in range(600)])
    mcp = McpApp(app, read_timeout=0.5 if backend.name == "postgres" else 1e-9)
    server = listen(Starlette(routes=[Mount("/mcp", mcp)], lifespan=lambda _: mcp.running()))
    token = server.token("read")

    async def work() -> str:
        async with over_http(server.url, token) as client:
            return (await client.call_tool("list_jobs", {"limit": 100})).content[0].text

    with contextlib.ExitStack() as stack:
        if backend.name == "postgres":
            other = stack.enter_context(psycopg.connect(backend.url))
            other.execute(f'LOCK TABLE "{backend.schema}".job IN ACCESS EXCLUSIVE MODE'.encode())
        reported = asyncio.run(asyncio.wait_for(work(), 60))
    assert "ask for less at once" in reported
    assert backend.url not in reported
