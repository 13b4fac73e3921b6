"""The research agent, driven from outside by the official MCP client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from examples.research_agent.conftest import StartServer
from examples.research_agent.driving import ROOT, Agent, ServerProcess, agent_at, hits

QUERY = "basalt aquifers in the Orla valley"
OTHERS = ["embed", "nli", "verify_nli", "citation_graph"]
LONG = "http://museum.example/luma-peat-bogs?" + "session=" + "x" * 600
WHOLE = [
    QUERY,
    "glacier meltwater in the Velm valley",
    "http://guarded.example/skarn-peat-bogs",
    "http://rivers.example/moved/tarn-peat-bogs",
    "http://rivers.example/broken",
    "http://rivers.example/private/diary",
    LONG,
]

pytestmark = pytest.mark.slow


def test_a_whole_research_task_with_captchas_and_a_restart_in_the_middle(
    start: StartServer, database_url: str, web: str
):
    asyncio.run(whole_task(start(database_url), web))


async def whole_task(server: ServerProcess, web: str) -> None:
    async with agent_at(server.url) as agent:
        queued = await agent.call("queue_targets", task_id="t1", targets=[*WHOLE, QUERY])
        assert queued == {"ok": True, "queued_count": 7, "target_ids": queued["target_ids"]}
        assert len(queued["target_ids"]) == 7  # QUERY came twice
        again = await agent.call("queue_targets", task_id="t1", targets=[WHOLE[2]])
        assert again == {"ok": True, "queued_count": 0, "target_ids": []}  # still waits for its CAPTCHA
        # What needs no human goes on meanwhile.
        answers = await agent.follow(
            "t1", lambda told: len(told["awaiting_auth"]) == 2 and told["progress"] >= "1/7"
        )
        assert {item["domain"] for item in answers[-1]["awaiting_auth"]} == {
            "guarded.example",
            "api.semanticscholar.example",
        }
        assert answers[0]["progress"].endswith("/7")
        states = await agent.rows("SELECT kind, state FROM jobs WHERE state = 'awaiting_auth' ORDER BY kind")
        assert states == [["citation_graph", "awaiting_auth"], ["target_queue", "awaiting_auth"]]
    server.kill()
    server.start()
    async with agent_at(server.url) as agent:
        told = await agent.call("get_status", task_id="t1")
        assert len(told["awaiting_auth"]) == 2
        for item in told["awaiting_auth"]:
            await agent.solve(item)
        told = await agent.finish("t1")
        await check_found(agent, told)
        await check_reading(agent)
    assert hits(web)["http://guarded.example/skarn-peat-bogs"] == 2  # with its puzzle, and solved


async def check_found(agent: Agent, told: dict[str, Any]) -> None:
    assert told["progress"] == "5/7"
    assert sorted(one["error"] for one in told["errors"]) == [
        "http://rivers.example/broken: HTTP 500",
        "http://rivers.example/private/diary: forbidden by robots.txt",
    ]
    found = {result["target"]: result for result in told["results"]}
    assert found[LONG]["pages"] == [LONG]
    assert found[WHOLE[3]]["pages"] == ["http://rivers.example/tarn-peat-bogs"]
    assert len(found[QUERY]["pages"]) == 6
    assert set(found[QUERY]["papers"]) == {"P000", "P001"}
    assert {kind for kind, counts in told["counts"].items() if counts.get("completed")} == {
        "target_queue",
        *OTHERS,
    }
    (footer,) = await agent.rows("SELECT COUNT(*) FROM pages WHERE text LIKE '%cookies%'")
    assert footer == [0]  # main text only


async def check_reading(agent: Agent) -> None:
    rows = agent.rows
    assert await rows("SELECT DISTINCT status FROM intervention_queue") == [["completed"]]
    same_domain = (
        "SELECT COUNT(*) FROM edges e JOIN fragments f ON f.fragment_id = e.fragment_id"
        " JOIN claims c ON c.claim_id = e.claim_id WHERE c.domain = f.domain"
    )
    assert await rows(same_domain) == [[0]]
    assert await rows(
        "SELECT COUNT(*) FROM (SELECT fragment_id, claim_id FROM edges GROUP BY 1, 2 HAVING COUNT(*) > 1) x"
    ) == [[0]]
    relations = dict(await rows("SELECT relation, COUNT(*) FROM edges GROUP BY relation"))
    assert relations["supports"] > relations["refutes"] > 0
    cites = await rows("SELECT citing_id, cited_id FROM cites WHERE citing_id IN ('P000', 'P001')")
    assert sorted(cites) == [["P000", "P001"], ["P001", "P000"]]  # what is about something else is left out
    priorities = await rows("SELECT DISTINCT kind, priority FROM jobs WHERE kind LIKE '%\\_%' ESCAPE '\\'")
    assert sorted(priorities) == [["citation_graph", 50], ["target_queue", 50], ["verify_nli", 45]]
    near = await agent.call("vector_search", task_id="t1", query="carbon in the peat bogs of Skarn", k=3)
    assert near["fragments"][0]["url"] == "http://guarded.example/skarn-peat-bogs"
    for bad in ("DELETE FROM pages", "SELECT 1; DELETE FROM pages", "ATTACH DATABASE 'x.db' AS x"):
        with pytest.raises(RuntimeError):
            await rows(bad)
    assert (await rows("SELECT COUNT(*) FROM pages"))[0][0] >= 14


def test_over_stdio_in_order_of_priority_with_limits(web: str, database_url: str):
    asyncio.run(over_stdio(web, database_url))


async def over_stdio(web: str, url: str) -> None:
    server = ServerProcess(url, web, NETWORK_CLIENT_SLOTS="1")
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "examples.research_agent", "--stdio"],
        env=server.environment,
        cwd=str(ROOT),
    )
    async with Client(stdio_client(parameters)) as client:
        agent = Agent(client)
        tools = await agent.tools()
        assert {"queue_targets", "get_status", "stop_task"} <= set(tools)
        assert all("taskId" not in schema["properties"] for schema in tools.values())
        await agent.call("queue_targets", task_id="t", targets=["http://rivers.example/slow"])
        await agent.until("t", lambda told: told["counts"]["target_queue"].get("running"))
        for priority in ("low", "medium", "high"):
            await agent.call(
                "queue_targets",
                task_id="t",
                targets=[f"http://rivers.example/{priority}"],
                options={"priority": priority},
            )
        await agent.finish("t")
        order = await agent.rows(
            "SELECT priority FROM jobs WHERE kind = 'target_queue' ORDER BY started_at LIMIT 4"
        )
        assert order == [[50], [10], [50], [90]]
        await agent.call(
            "queue_targets",
            task_id="engines",
            targets=["peat bogs in the Hask valley"],
            options={"serp_engines": ["ecosia", "bing"], "academic_apis": ["openalex"], "budget_pages": 2},
        )
        (result,) = (await agent.finish("engines"))["results"]
        assert result["errors"] == ["ecosia: HTTP 503"]  # and bing has answered
        assert (len(result["pages"]), len(result["papers"])) == (2, 1)
        with pytest.raises(RuntimeError, match="altavista"):
            await agent.call(
                "queue_targets", task_id="x", targets=["x"], options={"serp_engines": ["altavista"]}
            )
        with pytest.raises(RuntimeError, match="no task 'nobody'"):
            await agent.call("get_status", task_id="nobody")
        began = time.monotonic()
        await agent.call("get_status", task_id="t", wait=180)
        assert time.monotonic() - began < 60  # nothing is live: there is nothing to wait for


def test_limits_budgets_and_results_are_kept_in_the_database(shared_server: ServerProcess):
    asyncio.run(citations_within_their_budget(shared_server))
    look = (
        "import json\n"
        "from examples.research_agent import control\n"
        "app = control.app\n"
        "could = app.prune('0s', dry_run=True, override=True).jobs\n"
        "pruned = app.prune('0s').jobs\n"
        "slots = {row.name: row.limit for row in app.slots.list()}\n"
        "print(json.dumps([slots, [row.key for row in app.rates.list()], could, pruned]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", look],
        cwd=ROOT,
        env=shared_server.environment,
        check=True,
        stdout=subprocess.PIPE,
    )
    slots, rates, could, pruned = json.loads(done.stdout)
    assert slots == {"NETWORK_CLIENT": 4, "CPU_NLP": 8, "BROWSER_SERP": 2}
    assert {"serp:duckduckgo", "semantic_scholar", "openalex", "domain:geology.example"} <= set(rates)
    assert could > 0
    assert pruned == 0  # results are kept for audit, whatever their age


async def citations_within_their_budget(server: ServerProcess) -> None:
    async with agent_at(server.url) as agent:
        options = {"citation_graph_budget_pages": 1, "budget_pages": 3}
        target = "glacier meltwater in the Hask valley"
        await agent.call("queue_targets", task_id="cited", targets=[target], options=options)
        told = await agent.finish("cited")
        assert told["counts"]["citation_graph"] == {"completed": 1}
        assert len(told["results"][0]["pages"]) == 3
        citing = await agent.rows("SELECT DISTINCT citing_id FROM cites WHERE task_id = 'cited'")
        assert len(citing) == 1  # of two papers
        assert told["budget"]["pages"]["spent"] == 3  # citations are not charged to the task's pages
