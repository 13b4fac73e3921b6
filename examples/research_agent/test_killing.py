"""The server is killed again and again while it works."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest

from examples.measured import KILLS, database_of, ends_of_runs
from examples.research_agent.conftest import StartServer
from examples.research_agent.driving import PATIENCE, ServerProcess, agent_at, hits
from leasehold import Leasehold

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # on a busy machine a server takes a while to start
SUBJECTS = ("basalt aquifers", "glacier meltwater", "peat bogs")
QUERIES = [f"{subject} in the {place} valley" for place in ("Tarn", "Luma", "Ister") for subject in SUBJECTS]


def test_nothing_is_lost_or_doubled_when_the_server_is_killed(
    start: StartServer, database_url: str, web: str
):
    asyncio.run(survive_kills(start(database_url), web, 5))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_doubled_through_twenty_kills(start: StartServer, database_url: str, web: str):
    began = time.monotonic()
    asyncio.run(survive_kills(start(database_url), web, 20))
    minutes = round((time.monotonic() - began) / 60, 1)
    with Leasehold(database_url) as app:
        runs = ends_of_runs(app)
    ends = Counter(end for job in runs.values() for end in job)
    database = database_of(database_url)
    KILLS.put("research_agent", database, 20, len(runs), ends.total(), ends["lost"], minutes)


async def survive_kills(server: ServerProcess, web: str, kills: int) -> None:
    chance = random.Random(kills)
    targets = QUERIES + [f"http://almanac.example/slow?{number}" for number in range(3 * kills)]
    async with agent_at(server.url) as agent:
        queued = await agent.call("queue_targets", task_id="t", targets=targets)
        assert queued["queued_count"] == len(targets)
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.1, 1.5))  # the moment of the kill is the point
        server.kill()
        server.start()
    async with agent_at(server.url) as agent:
        told = await agent.finish("t", patience=2 * PATIENCE)
        assert told["progress"] == f"{len(targets)}/{len(targets)}"
        # Every target was verified, and each page is there once and says who found it.
        followed = await agent.rows(
            "SELECT kind, COUNT(*) FROM jobs WHERE kind IN ('verify_nli', 'citation_graph')"
            " AND state = 'completed' GROUP BY kind ORDER BY kind"
        )
        assert followed == [["citation_graph", 9], ["verify_nli", len(targets)]]
        stored = [
            url for (url,) in await agent.rows("SELECT url FROM pages WHERE job_id IN (SELECT id FROM jobs)")
        ]
        assert len(stored) == len(set(stored)) == 9 * 6 + 3 * kills
    fetched = hits(web)
    assert sum(fetched[url] for url in stored) <= len(stored) + 4 * kills  # at most what ran at a kill
