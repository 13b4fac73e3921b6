"""search → crawl → extract → store. Each part is a step: after a crash, or an answer, nothing is fetched
twice."""

from __future__ import annotations

from pydantic import BaseModel

from leasehold import Context, Fail

from .auth import ask_for_solution
from .charging import may_fetch
from .engines import (
    AUTOMATIC,
    SERP,
    EngineDown,
    FoundPaper,
    references_of,
    search_academic,
    search_serp,
)
from .fetching import Fetched, domain_of, fetch
from .options import Options, TargetResult
from .settings import DOMAIN_RATE
from .store import store_page


class SearchPage(BaseModel):
    urls: list[str] = []
    papers: list[FoundPaper] = []
    errors: list[str] = []


async def find(ctx: Context, query: str, options: Options) -> SearchPage:
    """Ask the engines and the academic APIs. One that is down is noted, and does not matter unless all
    of them are."""
    found = SearchPage()
    wanted = options.serp_engines
    answered = 0
    for engine in wanted or SERP:
        if wanted is None and answered == AUTOMATIC:
            break
        await ctx.acquire("BROWSER_SERP")  # a tab of the pool, and the engine's own policy
        await ctx.acquire(f"serp:{engine}")
        try:
            found.urls += [
                url for url in await search_serp(ctx.resources, engine, query) if url not in found.urls
            ]
            answered += 1
        except EngineDown as error:
            found.errors.append(str(error))
        finally:
            await ctx.release("BROWSER_SERP")
    for api in options.academic_apis:
        await ctx.acquire(api)
        try:
            known = {paper.paper_id for paper in found.papers}
            found.papers += [
                p for p in await search_academic(ctx.resources, api, query) if p.paper_id not in known
            ]
            answered += 1
        except EngineDown as error:
            found.errors.append(str(error))
    if not answered:
        raise Fail("; ".join(found.errors))
    return found


async def find_references(ctx: Context, paper_id: str, solved: str | None = None) -> list[FoundPaper]:
    """What a paper cites, within the one limit that all requests to this API share."""
    await ctx.acquire("semantic_scholar")
    return await references_of(ctx.resources, paper_id, solved)


class Crawl:
    """The pages of one target."""

    def __init__(self, ctx: Context, task_id: str, result: TargetResult) -> None:
        self._ctx = ctx
        self._task_id = task_id
        self._result = result
        self._guarded: list[tuple[int, Fetched]] = []

    async def run(self, urls: list[str]) -> None:
        """Pages behind a CAPTCHA come last: what can be had without a human is there by then."""
        for number, url in enumerate(urls):
            if not await may_fetch(self._ctx, "pages", number):
                self._result.budget_exhausted = True
                break
            page = await self._ctx.step(f"fetch {number}", self._fetch, url)
            if page.outcome == "captcha":
                self._guarded.append((number, page))
            else:
                await self._keep(number, page)
            self._ctx.progress(number + 1, len(urls), url[:200])
        for number, page in self._guarded:
            await self._keep_guarded(number, page)

    async def _fetch(self, url: str, solved: str | None = None) -> Fetched:
        return await fetch(self._ctx.resources, url, self._wait_for, solved)

    async def _wait_for(self, url: str) -> None:
        """Hosts turn up at run time, and bring their limit along."""
        await self._ctx.acquire(f"domain:{domain_of(url)}", rate=DOMAIN_RATE, burst=4)

    async def _keep_guarded(self, number: int, page: Fetched) -> None:
        solution = await ask_for_solution(self._ctx, self._task_id, page.url, page.detail)
        if solution is None:
            self._result.errors.append(f"{page.url}: the CAPTCHA was cancelled")
            return
        page = await self._ctx.step(f"fetch {number} solved", self._fetch, page.url, solution)
        await self._keep(number, page)

    async def _keep(self, number: int, page: Fetched) -> None:
        if page.outcome != "ok":
            detail = "the CAPTCHA was not solved" if page.outcome == "captcha" else page.detail
            self._result.errors.append(f"{page.url}: {detail}")
            return
        ctx = self._ctx
        await ctx.step(f"store {number}", store_page, self._task_id, ctx.job_id, page, tx=True)
        ctx.emit("page", {"url": page.url, "title": page.title}, key=f"page {number}")
        self._result.pages.append(page.url)
