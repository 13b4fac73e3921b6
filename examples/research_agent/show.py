"""`python -m examples.research_agent.show`: a whole research task, from outside, with real processes."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from typing import Any

from .driving import Agent, ServerProcess, agent_at, loopback_web

TARGETS = [
    "basalt aquifers in the Orla valley",
    "glacier meltwater in the Velm valley",
    "http://guarded.example/luma-peat-bogs",
    "http://rivers.example/moved/tarn-peat-bogs",
    "http://rivers.example/broken",
]


def say(text: str) -> None:
    print(text, flush=True)


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"not seen: {what}")
    say(f"  ok: {what}")


async def begin(agent: Agent) -> None:
    queued = await agent.call("queue_targets", task_id="aquifers", targets=[*TARGETS, TARGETS[0]])
    say(f"queue_targets → ok={queued['ok']}, queued_count={queued['queued_count']}")
    check(queued["queued_count"] == 5, "the duplicate target was skipped")
    for told in await agent.follow("aquifers", lambda told: len(told["awaiting_auth"]) == 2):
        say(f"get_status(wait=20) → {told['progress']}, {told['live']} live")
    for item in told["awaiting_auth"]:
        say(f"  awaiting_auth: {item['domain']}: {item['challenge']}")


async def go_on(agent: Agent) -> dict[str, Any]:
    told = await agent.call("get_status", task_id="aquifers")
    check(len(told["awaiting_auth"]) == 2, "after SIGKILL and a new start both CAPTCHAs still wait")
    for item in told["awaiting_auth"]:
        await agent.solve(item)
    told = await agent.finish("aquifers")
    say(f"get_status → {told['progress']}, errors: {[one['error'] for one in told['errors']]}")
    check(told["progress"] == "4/5", "four targets completed, the broken one failed nobody else")
    relations = dict(await agent.rows("SELECT relation, COUNT(*) FROM edges GROUP BY relation"))
    say(f"query_sql → edges {relations}")
    check(relations.get("supports", 0) > 0 and relations.get("refutes", 0) > 0, "claims were verified")
    (near,) = (await agent.call("vector_search", task_id="aquifers", query="carbon in peat", k=1))[
        "fragments"
    ]
    say(f"vector_search('carbon in peat') → {near['text'][:70]}…")
    return told


async def stop(agent: Agent) -> None:
    slow = [f"http://almanac.example/slow?{number}" for number in range(6)]
    await agent.call("queue_targets", task_id="slow", targets=slow)
    await agent.until("slow", lambda told: told["counts"]["target_queue"].get("running") == 4)
    report = await agent.call("stop_task", task_id="slow", mode="full", reason="user_cancelled")
    say(f"stop_task(mode=full) → cancelled_counts={report['cancelled_counts']}")
    check(
        report["cancelled_counts"] == {"target_queue": {"queued": 2, "running": 4}},
        "stop means stop: 4 running (NETWORK_CLIENT) and 2 queued were cancelled",
    )
    told = await agent.call("get_status", task_id="slow")
    check((told["status"], told["reason"]) == ("paused", "user_cancelled"), "the task is paused")


async def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        loopback_web() as web,
        ServerProcess(f"sqlite:///{folder}/research.db", web) as server,
    ):
        async with agent_at(server.url) as agent:
            await begin(agent)
        server.kill()
        say("SIGKILL of the MCP server, and a new start")
        server.start()
        async with agent_at(server.url) as agent:
            told = await go_on(agent)
            await stop(agent)
    pages = sum(len(result["pages"]) for result in told["results"])
    say(
        f"research_agent: {told['progress']} targets, {pages} pages, 2 CAPTCHAs, 1 kill, 1 stop; all as it should be"
    )
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
