"""Search engines and academic APIs: one small adapter each, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import httpx2
from lxml import html
from pydantic import BaseModel

from .fetching import puzzle_in

SERP = {
    name: f"http://{name}.example/search?q="
    for name in ("duckduckgo", "mojeek", "google", "brave", "ecosia", "startpage", "bing")
}
"""Where each engine answers."""
AUTOMATIC = 2
"""So many engines have to answer when the caller names none."""
REFERENCES = "http://api.semanticscholar.example/graph/v1/paper/{paper_id}/references"


class EngineDown(Exception):
    """An engine that does not answer as it should; others may."""


class NeedsAuth(Exception):
    """A human has to solve a puzzle first."""


class FoundPaper(BaseModel):
    paper_id: str
    title: str
    abstract: str
    url: str


def _scholar(answer: Any) -> list[FoundPaper]:
    return [_scholar_paper(one) for one in answer["data"]]


def _scholar_paper(one: Any) -> FoundPaper:
    return FoundPaper(paper_id=one["paperId"], title=one["title"], abstract=one["abstract"], url=one["url"])


def _openalex(answer: Any) -> list[FoundPaper]:
    return [
        FoundPaper(
            paper_id=one["id"],
            title=one["display_name"],
            abstract=one["abstract"],
            url=one["landing_page_url"],
        )
        for one in answer["results"]
    ]


ACADEMIC: dict[str, tuple[str, Callable[[Any], list[FoundPaper]]]] = {
    "semantic_scholar": ("http://api.semanticscholar.example/graph/v1/paper/search?query=", _scholar),
    "openalex": ("http://api.openalex.example/works?search=", _openalex),
}


async def search_serp(http: httpx2.AsyncClient, engine: str, query: str) -> list[str]:
    """Addresses of the results, the best first."""
    answer = await http.get(SERP[engine] + quote_plus(query))
    if answer.status_code != 200:
        raise EngineDown(f"{engine}: HTTP {answer.status_code}")
    page = html.fromstring(answer.text)
    return [str(link.get("href")) for link in page.iter("a") if link.get("class") == "result"]


async def search_academic(http: httpx2.AsyncClient, api: str, query: str) -> list[FoundPaper]:
    address, read = ACADEMIC[api]
    answer = await http.get(address + quote_plus(query))
    if answer.status_code != 200:
        raise EngineDown(f"{api}: HTTP {answer.status_code}")
    return read(answer.json())


async def references_of(http: httpx2.AsyncClient, paper_id: str, solved: str | None) -> list[FoundPaper]:
    """What a paper cites."""
    headers = {} if solved is None else {"Cookie": f"captcha={solved}"}
    answer = await http.get(REFERENCES.format(paper_id=paper_id), headers=headers)
    if (puzzle := puzzle_in(answer)) is not None:
        raise NeedsAuth(puzzle)
    if answer.status_code != 200:
        raise EngineDown(f"semantic_scholar: HTTP {answer.status_code}")
    return [_scholar_paper(one["citedPaper"]) for one in answer.json()["data"]]
