"""Jobs as MCP tasks, followed by a client that knows the extension."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.surfaces.http.conftest import Server
from tests.surfaces.mcp.clients import (
    Answer,
    Created,
    Following,
    cancel_task,
    get_task,
    over_http,
    update_task,
)

Work = Callable[[Client, Following], Awaitable[None]]


def talk(server: Server, work: Work, answer: Answer | None = None, *, worker: bool = True) -> None:
    async def run() -> None:
        following = Following(answer)
        token = server.token("read", "enqueue")
        async with over_http(server.url, token, extensions=[following]) as client:
            if not worker:
                await work(client, following)
                return
            async with server.app.worker(queues="default,agents"):
                await work(client, following)

    asyncio.run(run())


async def begin(client: Client, name: str, arguments: dict[str, Any] | None = None) -> str:
    """The handle of the task that a call has become."""
    made = await client.session.call_tool(name, arguments or {}, allow_claimed=True)
    assert isinstance(made, Created), made
    return made.task_id


def text(result: Any) -> str:
    return str(result.content[0].text)


def test_a_call_becomes_a_task_and_is_followed_to_its_result(server: Server):
    async def work(client: Client, following: Following) -> None:
        result = await client.call_tool("slow_compute", {"seconds": 0.2, "label": "x"})
        assert result.structured_content["result"] == {"label": "x"}
        assert len(following.made) == 1
        assert following.seen[-1] == "completed"

    talk(server, work)


def test_the_task_is_durable_when_the_call_answers(server: Server):
    async def work(client: Client, _: Following) -> None:
        id = await begin(client, "slow_compute")
        reported = await get_task(client.session, id)
        assert (reported["status"], reported["taskId"], reported["ttlMs"]) == ("working", id, None)
        assert server.app.get(id).state == "queued"

    talk(server, work, worker=False)


def test_a_question_is_a_form_and_its_reply_the_answer(server: Server):
    def answer(key: str, requested: dict[str, Any]) -> dict[str, Any]:
        assert (key, requested["message"], requested["mode"]) == ("confirm", "Delete f?", "form")
        assert requested["requestedSchema"]["properties"]["confirm"] == {"type": "boolean"}
        return {"action": "accept", "content": {"confirm": False}}

    async def work(client: Client, following: Following) -> None:
        assert text(await client.call_tool("confirm_delete", {"filename": "f"})) == "kept f"
        assert "input_required" in following.seen

    talk(server, work, answer)


def test_several_open_questions_are_answered_one_after_the_other(server: Server):
    async def work(client: Client, following: Following) -> None:
        id = await begin(client, "multi_input")
        reported = await until(client, id, "input_required")
        assert set(reported["inputRequests"]) == {"first", "second"}
        yes = {"action": "accept", "content": {"confirm": True}}
        await update_task(client.session, id, {"first": yes, "nobody asks this": yes})
        reported = await get_task(client.session, id)
        assert (reported["status"], set(reported["inputRequests"])) == ("input_required", {"second"})
        await update_task(client.session, id, {"second": yes})
        result = await following.follow(id, client.session)
        assert result.structured_content["result"] == ["first", "second"]

    talk(server, work)


def test_who_declines_to_answer_ends_the_job_and_who_puts_it_off_does_not(server: Server):
    async def work(client: Client, _: Following) -> None:
        id = await begin(client, "confirm_delete", {"filename": "f"})
        await until(client, id, "input_required")
        await update_task(client.session, id, {"confirm": {"action": "cancel"}})
        assert (await get_task(client.session, id))["status"] == "input_required"
        await update_task(client.session, id, {"confirm": {"action": "decline"}})
        reported = await get_task(client.session, id)
        assert (reported["status"], "declined" in reported["statusMessage"]) == ("cancelled", True)

    talk(server, work)


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(server: Server):
    async def work(client: Client, _: Following) -> None:
        id = await begin(client, "confirm_delete", {"filename": "f"})
        await until(client, id, "input_required")
        with pytest.raises(MCPError, match="confirm") as caught:
            await update_task(
                client.session, id, {"confirm": {"action": "accept", "content": {"confirm": "x"}}}
            )
        assert caught.value.code == -32602
        assert (await get_task(client.session, id))["status"] == "input_required"

    talk(server, work)


def test_a_secret_question_is_never_sent_as_a_form(server: Server):
    async def work(client: Client, _: Following) -> None:
        id = await begin(client, "ask_secret")
        async with asyncio.timeout(30):
            while server.app.get(id).state != "waiting":
                await asyncio.sleep(0.02)
        reported = await get_task(client.session, id)
        assert (reported["status"], "inputRequests" in reported) == ("working", False)
        assert "secret" in reported["statusMessage"]
        await update_task(client.session, id, {"password": {"action": "accept", "content": {"value": "x"}}})
        assert server.app.get(id).state == "waiting", "and no answer to it is taken"

    talk(server, work)


def test_a_failure_is_a_result_and_a_time_out_an_error(server: Server):
    async def work(client: Client, following: Following) -> None:
        failed = await client.call_tool("failing_job", {})
        assert failed.is_error
        assert "broken" in text(failed)
        id = await begin(client, "protocol_error_job")
        reported = await until(client, id, "failed")
        assert reported["error"]["code"] == -32603
        assert "result" not in reported

    talk(server, work)


def test_a_cancelled_task_is_cancelled_and_a_second_cancel_changes_nothing(server: Server):
    async def work(client: Client, _: Following) -> None:
        id = await begin(client, "slow_compute", {"seconds": 60})
        await cancel_task(client.session, id)
        await until(client, id, "cancelled")
        await cancel_task(client.session, id)
        assert (await get_task(client.session, id))["status"] == "cancelled"

    talk(server, work)


def test_nobody_else_finds_a_task(server: Server):
    async def run() -> None:
        async with over_http(server.url, server.token("read", "enqueue"), extensions=[Following()]) as client:
            id = await begin(client, "slow_compute")
        other = server.app.enqueue("slow_compute", {}).id
        async with over_http(server.url, server.token("admin"), extensions=[Following()]) as client:
            for unknown in (id, other, "x", "019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10"):
                for ask in (get_task, cancel_task):
                    with pytest.raises(MCPError) as caught:
                        await ask(client.session, unknown)
                    assert caught.value.code == -32602
        assert server.app.get(id).state == "queued"

    asyncio.run(run())


def test_a_client_that_does_not_know_tasks_is_refused_them(server: Server):
    async def run() -> None:
        async with over_http(server.url, server.token("read", "enqueue")) as client:
            for call in (
                lambda: client.call_tool("failing_job", {}),
                lambda: get_task(client.session, "x"),
                lambda: cancel_task(client.session, "x"),
            ):
                with pytest.raises(MCPError) as caught:
                    await call()
                assert caught.value.code == -32021
        assert server.app.jobs().jobs == []

    asyncio.run(run())


async def until(client: Client, id: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            reported = await get_task(client.session, id)
            if reported["status"] == status:
                return reported
            await asyncio.sleep(0.02)
