"""The tools: what an agent without tasks works with."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from leasehold import Leasehold
from leasehold.operations import jobs, questions
from leasehold.operations.verb import Verb
from leasehold.surfaces.mcp.tools import TOOLS, Tool
from tests.surfaces.http.conftest import Server
from tests.surfaces.mcp.clients import over_http

Work = Callable[[Client], Awaitable[None]]


def talk(
    server: Server, work: Work, *scopes: str, worker: bool = True, mode: str = "auto", **token: Any
) -> None:
    async def run() -> None:
        text = server.token(*(scopes or ("read", "enqueue", "operate")), **token)
        async with over_http(server.url, text, mode=mode) as client:
            if not worker:
                await work(client)
                return
            async with server.app.worker(queues="default,agents"):
                await work(client)

    asyncio.run(run())


def content(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


def error(result: CallToolResult) -> str:
    assert result.is_error, result
    return str(result.content[0].text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_job_is_made_followed_and_its_result_read(server: Server, mode: str):
    async def work(client: Client) -> None:
        made = content(await client.call_tool("enqueue_job", {"task": "greet", "args": {"name": "Ada"}}))
        assert made["created"] is True
        result = await client.call_tool("get_job", {"id": made["id"], "wait_s": 30})
        job = content(result)
        assert (job["state"], job["result"], job["next_poll_s"]) == ("succeeded", "Hello, Ada!", None)
        assert json.loads(result.content[0].text)["result"] == "Hello, Ada!", "the same as text"

    talk(server, work, mode=mode)


def test_what_a_tool_answers_fits_the_schema_that_it_promises(server: Server):
    """The client checks it, and raises."""

    async def work(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert all(tool.output_schema and tool.annotations and tool.description for tool in listed)
        group = {"task": "greet", "args": {"name": "x"}, "group": "g", "wait_s": 30}
        id = content(await client.call_tool("enqueue_job", group))["id"]
        for name, arguments in {
            "list_tasks": {},
            "list_jobs": {"group": "g", "state": ["succeeded"]},
            "explain_job": {"id": id},
            "stop_job": {"id": id, "dry_run": True},
            "list_questions": {},
            "group_status": {"group": "g"},
            "stop_group": {"group": "g", "dry_run": True},
        }.items():
            content(await client.call_tool(name, arguments))

    talk(server, work)


def test_a_job_that_is_not_done_says_when_to_ask_again(server: Server):
    async def work(client: Client) -> None:
        made = content(
            await client.call_tool("enqueue_job", {"task": "greet", "args": {"name": "x"}, "delay": "1h"})
        )
        assert made["state"] == "queued"
        assert made["next_poll_s"] >= 0.5
        (hold,) = content(await client.call_tool("explain_job", {"id": made["id"]}))["holds"][:1]
        assert hold["cause"]
        assert hold["remedy"]

    talk(server, work, worker=False)


def test_a_repeat_with_one_key_makes_one_job(server: Server):
    async def work(client: Client) -> None:
        call = {"task": "greet", "args": {"name": "x"}, "idempotency_key": "k"}
        first = content(await client.call_tool("enqueue_job", call))
        again = content(await client.call_tool("enqueue_job", call))
        assert (again["id"], first["created"], again["created"]) == (first["id"], True, False)
        other = await client.call_tool("enqueue_job", {**call, "args": {"name": "y"}})
        assert "key" in error(other)

    talk(server, work, worker=False)


def test_a_job_is_stopped_resumed_and_answered(server: Server):
    async def work(client: Client) -> None:
        delayed = {"task": "confirm_delete", "args": {"filename": "f"}, "delay": "1h"}
        id = content(await client.call_tool("enqueue_job", delayed))["id"]
        looked = content(await client.call_tool("stop_job", {"id": id, "dry_run": True}))
        assert (looked["state"], "dry run" in looked["hint"]) == ("queued", True)
        paused = content(await client.call_tool("stop_job", {"id": id, "mode": "pause", "reason": "lunch"}))
        assert paused["state"] == "paused"
        content(await client.call_tool("resume_job", {"id": id}))
        requested = content(await client.call_tool("get_job", {"id": id, "wait_s": 30}))
        assert [(one["key"], one["secret"]) for one in requested["questions"]] == [("confirm", False)]
        (open_,) = content(await client.call_tool("list_questions", {}))["questions"]
        assert (open_["job_id"], open_["key"]) == (id, "confirm")
        refused = await client.call_tool("answer_question", {"id": id, "key": "confirm", "value": "yes"})
        assert "confirm" in error(refused)
        answer = {"id": id, "key": "confirm", "value": {"confirm": True}}
        content(await client.call_tool("answer_question", answer))
        done = content(await client.call_tool("get_job", {"id": id, "wait_s": 30}))
        assert done["result"] == "deleted f"

    talk(server, work)
    (job,) = server.app.jobs().jobs
    entries = server.app.get(job.id).history()
    steered = [entry for entry in entries if "paused" in (entry.from_state, entry.to_state)]
    assert [entry.actor for entry in steered] == ["mcp:token 0", "mcp:token 0"]


def test_a_group_is_followed_and_stopped(server: Server):
    async def work(client: Client) -> None:
        for _ in range(3):
            call = {"task": "slow_compute", "group": "g", "delay": "1h"}
            content(await client.call_tool("enqueue_job", call))
        status = content(await client.call_tool("group_status", {"group": "g"}))
        assert (status["total"], status["live"], status["next_poll_s"]) == (3, 3, 5.0)
        waiting = asyncio.create_task(
            client.call_tool("group_status", {"group": "g", "since": status["version"], "wait_s": 30})
        )
        dry = content(await client.call_tool("stop_group", {"group": "g", "dry_run": True}))
        assert dry["dry_run"] is True
        assert server.app.count()["queued"] == 3
        stopped = content(await client.call_tool("stop_group", {"group": "g", "reason": "enough"}))
        assert stopped["cancelled_counts"] == {"slow_compute": {"queued": 3}}
        seen = content(await waiting)
        assert seen["version"] > status["version"], "it was told of the first change"
        while seen["live"]:
            follow = {"group": "g", "since": seen["version"], "wait_s": 30}
            seen = content(await client.call_tool("group_status", follow))

    talk(server, work, worker=False)


def test_an_exposed_task_is_a_tool_with_the_schema_of_its_own_arguments(server: Server):
    async def work(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "hidden" not in tools
        assert tools["greet"].description == "Greets somebody."
        assert tools["greet"].input_schema["properties"]["name"]["type"] == "string"
        answer = await client.call_tool("greet", {"name": "Ada"})
        assert (answer.content[0].text, content(answer)["result"]) == ("Hello, Ada!", "Hello, Ada!")
        structured = await client.call_tool("slow_compute", {"label": "x"})
        assert content(structured)["result"] == {"label": "x"}
        wrong = await client.call_tool("greet", {"nme": "Ada"})
        assert "name" in error(wrong)

    talk(server, work)


def test_a_call_of_a_task_that_waits_for_a_person_says_how_to_go_on(server: Server):
    async def work(client: Client) -> None:
        answer = await client.call_tool("confirm_delete", {"filename": "f"})
        assert content(answer)["state"] == "waiting"
        assert "Delete f?" in answer.content[0].text
        assert "get_job" in answer.content[0].text

    talk(server, work)


def test_wrong_arguments_are_told_by_field_and_unknown_tools_refused(server: Server):
    async def work(client: Client) -> None:
        assert "wait_s" in error(await client.call_tool("get_job", {"id": "x", "wait_s": 1000}))
        assert "idd" in error(await client.call_tool("get_job", {"idd": "x"}))
        assert "no job has the id" in error(await client.call_tool("get_job", {"id": "x"}))
        assert "no_such" in error(await client.call_tool("enqueue_job", {"task": "no_such"}))
        with pytest.raises(Exception, match="no tool is named 'hidden'"):
            await client.call_tool("hidden", {})

    talk(server, work, worker=False)


def test_sensitive_arguments_are_shown_to_nobody(server: Server):
    async def work(client: Client) -> None:
        made = await client.call_tool(
            "enqueue_job", {"task": "use_key", "args": {"key": "s3cret"}, "delay": "1h"}
        )
        id = content(made)["id"]
        for name, arguments in {"get_job": {"id": id}, "list_jobs": {}, "explain_job": {"id": id}}.items():
            answer = await client.call_tool(name, arguments)
            assert "s3cret" not in answer.model_dump_json()

    talk(server, work, worker=False)


def test_every_tool_is_listed_in_the_same_order_each_time(server: Server, app: Leasehold):
    async def work(client: Client) -> None:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[: len(TOOLS)] == list(TOOLS)
        assert names[len(TOOLS) :] == sorted(names[len(TOOLS) :])

    talk(server, work, worker=False)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_a_tool_needs_what_its_verbs_need_and_calls_no_others(tool: Tool):
    modules = {"jobs": jobs, "questions": questions}
    named = re.findall(r"\b(jobs|questions)\.(\w+)", inspect.getsource(tool.call))
    called = {getattr(modules[module], name, None) for module, name in named}
    assert {one for one in called if isinstance(one, Verb)} <= set(tool.verbs)
    assert {verb.scope for verb in tool.verbs} <= {tool.scope}
    if tool.verbs:
        assert tool.annotations.read_only_hint is not any(verb.write for verb in tool.verbs)
        assert bool(tool.annotations.destructive_hint) is any(verb.destructive for verb in tool.verbs)
    else:
        assert tool.name in ("list_tasks", "enqueue_job", "group_status", "stop_group"), (
            "no verbs of the table"
        )
