"""Stops in every mode and scope, and an exhausted budget."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from examples.research_agent.conftest import StartServer
from examples.research_agent.driving import ROOT, ServerProcess, agent_at

QUERY = "basalt aquifers in the Orla valley"
OTHERS = ["embed", "nli", "verify_nli", "citation_graph"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scope", ["all_jobs", "target_queue_only"])
@pytest.mark.parametrize("mode", ["graceful", "immediate", "full"])
def test_a_stop_in_every_mode_and_scope(shared_server: ServerProcess, mode: str, scope: str):
    asyncio.run(stop(shared_server, mode, scope, f"{mode} {scope}"))


async def stop(server: ServerProcess, mode: str, scope: str, t: str) -> None:
    slow = [f"http://almanac.example/slow?{number}" for number in range(6)]
    async with agent_at(server.url) as agent:
        await agent.call("queue_targets", task_id=t, targets=[QUERY], options={"budget_pages": 1})
        await agent.until(
            t, lambda told: told["awaiting_auth"] and told["progress"] == "1/1" and told["live"] == 1
        )
        await agent.call("queue_targets", task_id=t, targets=slow)
        await agent.until(t, lambda told: told["counts"]["target_queue"].get("running") == 4)
        report = await agent.call("stop_task", task_id=t, scope=scope, mode=mode, reason="user_cancelled")
        counts = report["cancelled_counts"]
        graceful = mode == "graceful"
        if graceful:
            assert counts["target_queue"] == {"queued": 2}
        else:  # a place that a stopped run leaves may be taken before the stop comes to those that wait
            assert sum(counts["target_queue"].values()) == 6
            assert counts["target_queue"]["running"] >= 4
        assert counts.get("citation_graph") == ({"awaiting_auth": 1} if scope == "all_jobs" else None)
        assert report["unaffected_tasks"] == ([] if scope == "all_jobs" else sorted(OTHERS))
        assert (report["scope"], report["reason"]) == (scope, "user_cancelled")
        told = await agent.finish(t)
        assert (told["status"], told["reason"]) == ("paused", "user_cancelled")
        targets = told["counts"]["target_queue"]
        assert targets == ({"completed": 5, "cancelled": 2} if graceful else {"completed": 1, "cancelled": 6})
        # Outside the scope the job goes on without its answer; the item is closed in any case.
        ended = "cancelled" if scope == "all_jobs" else "completed"
        assert told["counts"]["citation_graph"] == {ended: 1}
        (item,) = await agent.rows(f"SELECT status FROM intervention_queue WHERE task_id = '{t}'")
        assert item == ["cancelled"]
        verified = told["counts"]["verify_nli"].get("completed")
        assert verified == (5 if graceful and scope == "target_queue_only" else 1)
        assert await agent.rows(f"SELECT url FROM pages WHERE task_id = '{t}'")  # what was found stays
        await agent.call("queue_targets", task_id=t, targets=["http://rivers.example/tarn-peat-bogs"])
        told = await agent.finish(t)
        assert (told["status"], told["reason"]) == ("active", None)


def test_a_stop_that_says_nothing_more_is_graceful_for_all_jobs_because_the_session_is_over(
    shared_server: ServerProcess,
):
    asyncio.run(stop_by_default(shared_server))


async def stop_by_default(server: ServerProcess) -> None:
    async with agent_at(server.url) as agent:
        await agent.call("queue_targets", task_id="default", targets=["http://rivers.example/tarn-peat-bogs"])
        await agent.finish("default")
        report = await agent.call("stop_task", task_id="default")
        assert (report["scope"], report["mode"]) == ("all_jobs", "graceful")
        assert (report["reason"], report["unaffected_tasks"]) == ("session_completed", [])
        told = await agent.call("get_status", task_id="default")
        assert (told["status"], told["reason"]) == ("paused", "session_completed")
        with pytest.raises(RuntimeError, match="reason"):
            await agent.call("stop_task", task_id="default", reason="bored")
        with pytest.raises(RuntimeError, match="no task 'nobody'"):
            await agent.call("stop_task", task_id="nobody")


def test_an_exhausted_budget_stops_the_task_until_it_is_raised(start: StartServer, database_url: str):
    server = start(database_url)
    asyncio.run(exhaust(server))
    repeat = (
        "from leasehold.types import Notification\n"
        "from examples.research_agent.control import stop_when_exhausted\n"
        "data = {'scope': 'group', 'name': 't', 'unit': 'pages', 'limit': 4, 'spent': 5, 'version': 1}\n"
        "stop_when_exhausted(Notification('budget_exhausted', '', 'target_queue', 'default', 1, '', data))\n"
    )
    subprocess.run([sys.executable, "-c", repeat], cwd=ROOT, env=server.environment, check=True)
    asyncio.run(still_active(server))


async def exhaust(server: ServerProcess) -> None:
    places = ["Tarn", "Velm", "Luma", "Brask", "Ister", "Quell", "Nordal", "Hask"]
    queries = [f"peat bogs in the {place} valley" for place in places]
    async with agent_at(server.url) as agent:
        await agent.call("queue_targets", task_id="t", targets=queries, options={"task_budget_pages": 4})
        told = (await agent.follow("t", lambda told: told["status"] == "paused"))[-1]
        assert told["reason"] == "budget_exhausted"
        told = await agent.finish("t")
        assert len(await agent.rows("SELECT url FROM pages")) == 4
        assert any(result["budget_exhausted"] for result in told["results"])
        assert told["counts"]["verify_nli"].get("cancelled") is None  # what was found is verified
        await agent.call(
            "queue_targets", task_id="t", targets=queries[:1], options={"task_budget_pages": 100}
        )
        told = await agent.finish("t")
        assert told["status"] == "active"
        assert not told["results"][0]["budget_exhausted"]


async def still_active(server: ServerProcess) -> None:
    async with agent_at(server.url) as agent:
        assert (await agent.call("get_status", task_id="t"))["status"] == "active"
