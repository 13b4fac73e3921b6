"""Slots and rates under load: two servers share one database, and more targets wait than may be worked on.

What is checked cannot fail because a machine is slow: a rate says how long so many requests take at least, and a slot
how many meet at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from examples.research_agent.conftest import new_database
from examples.research_agent.driving import ServerProcess, agent_at, load, loopback_web
from leasehold import Leasehold

pytestmark = pytest.mark.slow
PLACES = ("Tarn", "Velm", "Luma", "Brask", "Ister", "Quell", "Nordal", "Hask")
RATES = {"bing.example": 2.0, "api.semanticscholar.example": 2.0}
"""Slower than anything before them, so that these limits alone decide how long it takes."""
KEYS = {"bing.example": "serp:bing", "api.semanticscholar.example": "semantic_scholar"}
DOMAIN, DOMAIN_RATE, DOMAIN_BURST = "review.example", 4.0, 4
STEADY = {"RESEARCH_LEASE": "30s", "DOMAIN_RATE": f"{DOMAIN_RATE:g}/s"}


@dataclass(frozen=True)
class Load:
    servers: list[ServerProcess]
    web: str
    database_url: str


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def under(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    """Both servers have set the limits of the settings before a test sets its own."""
    url = new_database(request, tmp_path_factory.mktemp("limits"))
    with (
        loopback_web(SLOW_SECONDS="1.5") as web,
        ServerProcess(url, web, **STEADY) as one,
        ServerProcess(url, web, **STEADY) as other,
    ):
        yield Load([one, other], web, url)


async def work(servers: list[ServerProcess], what: str, targets: list[list[str]], **options: Any) -> None:
    """Each server gets a task of its own, at the same time; it returns when all targets have completed."""

    async def one(server: ServerProcess, task_id: str, mine: list[str]) -> None:
        async with agent_at(server.url) as agent:
            await agent.call("queue_targets", task_id=task_id, targets=mine, options=options)
            told = await agent.finish(task_id)
            assert told["progress"] == f"{len(mine)}/{len(mine)}", told["errors"]

    parts = zip(servers, (f"{what} 1", f"{what} 2"), targets, strict=True)
    await asyncio.gather(*(one(server, task_id, mine) for server, task_id, mine in parts))


def visits_since(began: float, web: str, host: str) -> list[float]:
    return [moment for moment in load(web)["asked_at"][host] if moment >= began]


def test_engines_academic_apis_and_domains_are_asked_no_faster_than_their_rates(under: Load):
    with Leasehold(under.database_url) as app:
        for host, key in KEYS.items():
            app.rates.set(key, f"{RATES[host]:g}/s")
    began = time.monotonic()
    queries = [
        [f"{subject} in the {place} valley" for place in PLACES]
        for subject in ("peat bogs", "glacier meltwater")
    ]
    engines = {"serp_engines": ["bing"], "academic_apis": ["openalex"]}
    asyncio.run(work(under.servers, "queries", queries, **engines, budget_pages=1))
    for host, rate in RATES.items():
        visits = visits_since(began, under.web, host)
        assert len(visits) >= 16
        assert visits[-1] - began >= (len(visits) - 1) / rate, host

    began = time.monotonic()
    pages = [
        [f"http://{DOMAIN}/{place.lower()}-{subject}" for place in PLACES]
        for subject in ("peat-bogs", "glacier-meltwater")
    ]
    asyncio.run(work(under.servers, "pages", pages))
    visits = visits_since(began, under.web, DOMAIN)
    assert len(visits) >= 16
    assert visits[-1] - began >= (len(visits) - DOMAIN_BURST) / DOMAIN_RATE


def test_tabs_and_network_clients_are_limited_across_both_servers(under: Load):
    queries = [[f"basalt aquifers in the {place} valley" for place in PLACES[number::2]] for number in (0, 1)]
    engines = {"serp_engines": ["brave"], "academic_apis": ["openalex"]}
    asyncio.run(work(under.servers, "slow searches", queries, **engines, budget_pages=1))
    slow = [[f"http://almanac.example/slow?{number}" for number in range(start, 12, 2)] for start in (0, 1)]
    asyncio.run(work(under.servers, "slow pages", slow))
    assert load(under.web)["peaks"] == {"search engine": 2, "slow pages": 4}
