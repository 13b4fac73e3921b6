"""The five kinds of jobs. All belong to the task's group, also those that another job asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from leasehold import Context, Fail, Retry, Slot, SyncContext

from . import database
from .app import app
from .auth import ask_for_solution
from .charging import may_fetch
from .engines import REFERENCES, NeedsAuth
from .entailment import Entailment, LexicalEntailment
from .fetching import client
from .options import Options, TargetResult
from .pipeline import Crawl, find, find_references
from .settings import (
    CITATION_GRAPH_PRIORITY,
    EMBED_PRIORITY,
    LEASE,
    NLI_PRIORITY,
    SLOT_LIMITS,
    VERIFY_NLI_PRIORITY,
)
from .store import store_citations, store_edges, store_embeddings, store_papers
from .text import embed as vector_of
from .text import similarity
from .vectors import index_of

NETWORK_CLIENT = {"NETWORK_CLIENT": Slot(limit=SLOT_LIMITS["NETWORK_CLIENT"])}
CPU_NLP = {"CPU_NLP": Slot(limit=SLOT_LIMITS["CPU_NLP"])}
ONCE = Retry(max_attempts=1)
"""An error is final. A crash is not: a job whose worker has died is taken over."""
CANDIDATES = 4
RELEVANT = 0.55
judge: Entailment = LexicalEntailment()


@app.lifespan
async def browser() -> AsyncIterator[httpx2.AsyncClient]:
    """What all jobs of a worker share: `ctx.resources`."""
    async with client() as http:
        yield http


@app.task(slots=NETWORK_CLIENT, unique="{task_id} {target}", retry=ONCE, retention=None, lease=LEASE)
async def target_queue(ctx: Context, task_id: str, target: str, options: Options) -> TargetResult:
    """A query goes through the engines, a URL is fetched as it is."""
    result = TargetResult(target=target)
    if target.startswith(("http://", "https://")):
        await Crawl(ctx, task_id, result).run([target])
        if not result.pages and result.errors:
            raise Fail("; ".join(result.errors))
    else:
        found = await ctx.step("find", find, ctx, target, options)
        result.errors += found.errors
        if found.papers:
            result.papers = [paper.paper_id for paper in found.papers]
            await ctx.step("papers", store_papers, task_id, ctx.job_id, found.papers, tx=True)
            during = citation_graph.using(
                immediately=True, budget={"citation_graph_pages": options.citation_graph_budget_pages}
            )
            await ctx.enqueue(during, task_id, target, result.papers)
        await Crawl(ctx, task_id, result).run(found.urls[: options.budget_pages])
    embedded = ctx.enqueue(embed, task_id)
    ctx.enqueue(verify_nli.using(after=[embedded], on_parent_failure="run"), task_id)
    return result


@app.task(slots=CPU_NLP, priority=-CITATION_GRAPH_PRIORITY, retry=ONCE, retention=None, lease=LEASE)
async def citation_graph(ctx: Context, task_id: str, query: str, paper_ids: list[str]) -> dict[str, int]:
    """Follow what the papers cite, as far as it is about the query and the budget lasts."""
    waiting, seen, kept = list(paper_ids), set(paper_ids), 0
    for number, paper_id in enumerate(waiting):
        if not await may_fetch(ctx, "citation_graph_pages", number):
            break
        try:
            cited = await ctx.step(f"references {paper_id}", find_references, ctx, paper_id)
        except NeedsAuth as needed:
            address = REFERENCES.format(paper_id=paper_id)
            solved = await ask_for_solution(ctx, task_id, address, str(needed))
            if solved is None:
                continue
            cited = await ctx.step(f"references {paper_id} solved", find_references, ctx, paper_id, solved)
        relevant = [one for one in cited if similarity(query, one.title) >= RELEVANT]
        await ctx.step(f"store {paper_id}", store_citations, task_id, ctx.job_id, paper_id, relevant, tx=True)
        kept += len(relevant)
        waiting += [one.paper_id for one in relevant if one.paper_id not in seen]
        seen |= {one.paper_id for one in relevant}
        for one in relevant:
            ctx.enqueue(nli, task_id, paper_id, one.paper_id)
    ctx.enqueue(embed, task_id)
    return {"papers": len(seen), "cites": kept}


@app.task(slots=CPU_NLP, priority=-VERIFY_NLI_PRIORITY, retry=ONCE, retention=None, lease=LEASE)
def verify_nli(ctx: SyncContext, task_id: str) -> dict[str, int]:
    """Look for fragments of other domains that support or refute each claim of the task."""
    claims = database.read("SELECT claim_id, domain, text FROM claims WHERE task_id = ?", (task_id,))
    judged = set(database.read("SELECT fragment_id, claim_id FROM edges WHERE task_id = ?", (task_id,)))
    edges: list[tuple[str, str, str, float]] = []
    index = index_of(task_id)
    for claim_id, domain, text in claims:
        ctx.raise_if_stopped()  # a thread cannot be stopped from outside
        for near in index.nearest(text, CANDIDATES, not_from=domain):
            fragment_id = str(near["fragment_id"])
            if (fragment_id, claim_id) not in judged:
                found = judge.judge(str(near["text"]), text)
                edges.append((fragment_id, claim_id, found.relation, found.score))
    with ctx.complete({"claims": len(claims), "judged": len(edges)}) as tx:
        store_edges(tx.connection, task_id, ctx.job_id, edges)
    return {}


@app.task(slots=CPU_NLP, priority=-EMBED_PRIORITY, retry=ONCE, retention=None, lease=LEASE)
def embed(ctx: SyncContext, task_id: str) -> int:
    """Vectors for the fragments that have none."""
    found = database.read(
        "SELECT fragment_id, text FROM fragments WHERE task_id = ? AND embedding IS NULL", (task_id,)
    )
    vectors = [(fragment_id, vector_of(text)) for fragment_id, text in found]
    with ctx.complete(len(vectors)) as tx:
        store_embeddings(tx.connection, vectors)
    return 0


@app.task(slots=CPU_NLP, priority=-NLI_PRIORITY, retry=ONCE, retention=None, lease=LEASE)
def nli(ctx: SyncContext, task_id: str, citing_id: str, cited_id: str) -> int:
    """A citation is a promise: does the cited paper support what the citing one claims?"""
    pairs = database.read(
        "SELECT f.fragment_id, f.text, c.claim_id, c.text FROM papers a JOIN claims c ON c.url = a.url"
        " JOIN papers b ON b.task_id = a.task_id AND b.paper_id = ? JOIN fragments f ON f.url = b.url"
        " WHERE a.task_id = ? AND a.paper_id = ? AND c.task_id = a.task_id AND f.task_id = a.task_id"
        " AND c.domain <> f.domain",
        (cited_id, task_id, citing_id),
    )
    edges: list[tuple[str, str, str, float]] = []
    for fragment_id, fragment, claim_id, claim in pairs:
        found = judge.judge(fragment, claim)
        edges.append((fragment_id, claim_id, found.relation, found.score))
    with ctx.complete(len(pairs)) as tx:
        store_edges(tx.connection, task_id, ctx.job_id, edges)
    return 0
