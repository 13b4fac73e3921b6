"""One address over HTTP, politely: robots rules, a limit for each host, redirects one by one, and
CAPTCHAs recognised."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Literal
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx2
from pydantic import BaseModel

from .settings import FETCH_TIMEOUT, RESEARCH_PROXY
from .text import main_text

AGENT = "leasehold-research-example"
MOST_REDIRECTS = 5
Wait = Callable[[str], Awaitable[None]]
"""Waits until the host of an address may be asked again."""
_TITLE = re.compile(r"<title>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_CAPTCHA = re.compile(r"class=['\"]captcha['\"]>(.*?)<", re.DOTALL)
_robots: dict[str, RobotFileParser] = {}


class Fetched(BaseModel):
    url: str
    outcome: Literal["ok", "captcha", "error"]
    title: str = ""
    text: str = ""
    detail: str = ""
    """The puzzle of a CAPTCHA, or what went wrong."""


def domain_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def client() -> httpx2.AsyncClient:
    """One serves all jobs of a worker: `app.lifespan` in tasks.py makes it."""
    return httpx2.AsyncClient(
        proxy=RESEARCH_PROXY, timeout=FETCH_TIMEOUT, headers={"User-Agent": AGENT}, trust_env=False
    )


async def fetch(http: httpx2.AsyncClient, url: str, wait: Wait, solved: str | None = None) -> Fetched:
    """The page behind an address. What goes wrong with one page is an answer, not an exception: it fails
    nobody else."""
    headers = {} if solved is None else {"Cookie": f"captcha={solved}"}
    try:
        for _ in range(MOST_REDIRECTS):
            if not await _allowed(http, url, wait):
                return Fetched(url=url, outcome="error", detail="forbidden by robots.txt")
            await wait(url)
            answer = await http.get(url, headers=headers)
            if answer.status_code not in (301, 302, 303, 307, 308):
                return _reported(url, answer)
            url = urljoin(url, answer.headers["location"])
    except httpx2.HTTPError as error:
        return Fetched(url=url, outcome="error", detail=f"{type(error).__name__}: {error}")
    return Fetched(url=url, outcome="error", detail="too many redirects")


def puzzle_in(answer: httpx2.Response) -> str | None:
    """What the CAPTCHA asks, if this is one."""
    found = _CAPTCHA.search(answer.text) if answer.status_code == 403 else None
    return None if found is None else found[1].strip()


def _reported(url: str, answer: httpx2.Response) -> Fetched:
    if (puzzle := puzzle_in(answer)) is not None:
        return Fetched(url=url, outcome="captcha", detail=puzzle)
    if answer.status_code != 200:
        return Fetched(url=url, outcome="error", detail=f"HTTP {answer.status_code}")
    title = _TITLE.search(answer.text)
    return Fetched(
        url=url, outcome="ok", title=title[1].strip() if title else url, text=main_text(answer.text)
    )


async def _allowed(http: httpx2.AsyncClient, url: str, wait: Wait) -> bool:
    """The rules of a host are read once by a process."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    if root not in _robots:
        await wait(url)
        answer = await http.get(f"{root}/robots.txt")
        rules = RobotFileParser()
        rules.parse(answer.text.splitlines() if answer.status_code == 200 else [])
        _robots[root] = rules
    return _robots[root].can_fetch(AGENT, url)
