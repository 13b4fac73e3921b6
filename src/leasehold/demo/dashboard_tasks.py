"""The tasks of `leasehold demo --dashboard`: small stand-ins for real work. The server and the workers load them in
their own processes."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
import time
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from leasehold.app import Leasehold
from leasehold.domain.errors import QuestionExpired
from leasehold.types import Command, Context, Fail, Rate, Retry, Slot, SyncContext

PARENT = "LEASEHOLD_DEMO_PARENT"
"""Set by `leasehold demo --dashboard` for the processes that it starts; not for users."""
LEASE = 6.0
"""Seconds. Short, so that a dead worker's jobs are soon taken over; the default is 30."""
QUEUES = ("default", "crawl", "llm", "media", "mail")
TENANT = "acme"

app = Leasehold()
log = logging.getLogger("demo")


def _leave_with_the_demo(parent: int) -> None:
    """End this process if the demo is killed, so that none is left behind."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if str(os.getppid()) == os.environ.get(PARENT):
    threading.Thread(target=_leave_with_the_demo, args=(os.getppid(),), daemon=True).start()


# -- crawls: progress, updates, log lines, slots, rates, follow-ups ---------------------------------------------------
@app.task(
    queue="crawl", lease=LEASE, slots={"browser": Slot(units=1, limit=3)}, stall_after="1m", tags=("web",)
)
async def crawl(ctx: Context, site: str, pages: int) -> dict[str, int]:
    """Read a site page by page; after a crash continue with the next page."""
    words: int = ctx.saved["words"] if ctx.saved else 0
    for page in range(ctx.saved["page"] + 1 if ctx.saved else 1, pages + 1):
        await asyncio.sleep(random.uniform(0.4, 1.2))
        found = random.randint(200, 2500)
        words += found
        ctx.log(f"GET https://{site}/{page} 200, {found} words")
        ctx.emit("page", {"url": f"https://{site}/{page}", "words": found}, key=f"page-{page}")
        ctx.progress(page, pages, f"{site}/{page}")
        await ctx.checkpoint({"page": page, "words": words})
    ctx.enqueue(index_site.using(priority="low"), site, words)
    return {"pages": pages, "words": words}


@app.task(queue="crawl", lease=LEASE)
async def index_site(site: str, words: int) -> str:
    await asyncio.sleep(0.3)
    return f"{site}: {words} words indexed"


@app.task(
    queue="crawl",
    lease=LEASE,
    rate=Rate("{domain}", "40/min", burst=3),
    retry=Retry(max_attempts=3, backoff=2),
    tags=("web", "domain:{domain}"),
)
async def fetch_page(domain: str, path: str) -> int:
    """Fetch a page: most fetches succeed, some after a retry, some never."""
    await asyncio.sleep(random.uniform(0.1, 0.6))
    luck = random.random()
    if luck < 0.12:
        raise ConnectionError(f"{domain} answered 503 Service Unavailable")
    if luck < 0.2:
        raise TimeoutError(f"{domain} did not answer within 30 s")
    if luck < 0.23:
        raise Fail(f"{domain}{path} is gone (410)")
    if luck < 0.26:
        return int("<!doctype html>")  # a bug, with a traceback
    return random.randint(10_000, 90_000)


# -- agents: steps, budgets, rates inside a run, groups ---------------------------------------------------------------
@app.task(
    queue="llm", lease=LEASE, budget={"tokens": 24_000, "cents": 60}, on_breach="pause", tags=("model:large",)
)
async def research(ctx: Context, question: str) -> str:
    """Run an agent: each finding is a step, which is paid for once."""
    notes = []
    for turn in range(1, random.randint(3, 6)):
        await ctx.acquire("model-api", rate="120/min", burst=5)
        tokens = await ctx.step(f"think {turn}", think, question, turn)
        await ctx.spend(tokens=tokens, cents=tokens // 600, key=f"turn {turn}")
        ctx.progress(turn, note=f"{ctx.left('tokens')} tokens left")
        ctx.log(f"turn {turn}: {tokens} tokens")
        notes.append(f"finding {turn}")
    return f"{question}: {'; '.join(notes)}"


async def think(question: str, turn: int) -> int:
    await asyncio.sleep(random.uniform(0.5, 2.0))
    return random.randint(2_000, 9_000)


@app.task(queue="llm", lease=LEASE, priority="high")
async def summarize(ctx: Context) -> str:
    """The last node of a DAG: sum up what the others found."""
    parts = await ctx.results()
    await asyncio.sleep(1)
    return f"{len(parts)} sources agree"


@app.task(queue="llm", lease=LEASE)
async def read_source(source: str) -> dict[str, str]:
    await asyncio.sleep(random.uniform(0.5, 3))
    return {"source": source, "opinion": random.choice(["yes", "no", "perhaps"])}


@app.task(lease=LEASE)
def load_orders(day: str) -> int:
    return len(day) * 7


@app.task(lease=LEASE)
def post_totals(ctx: SyncContext) -> str:
    (orders,) = ctx.results().values()
    ctx.wait(0.5)
    return f"{orders} orders posted"


# -- lanes, failures, time limits -------------------------------------------------------------------------------------
@app.task(lane="account-{account}", lease=LEASE, retry=Retry(max_attempts=2, backoff=1))
async def sync_account(account: int, part: str) -> str:
    """Run one at a time and in order per account; a failure halts the lane until someone resumes it."""
    await asyncio.sleep(random.uniform(0.3, 1))
    if account == 3 and part == "invoices":
        raise Fail("the login has expired")
    return part


@app.task(lease=LEASE, retry=Retry(max_attempts=2, backoff=3), unique="order-{order}", tags=("money",))
def charge_card(ctx: SyncContext, order: int, cents: int) -> str:
    ctx.wait(random.uniform(0.2, 1))
    if order % 5 == 0:
        raise PermissionError(f"card of order {order} declined: insufficient funds")
    if order % 7 == 0:
        raise KeyError("customer_id")
    return f"receipt-{order}"


@app.task(lease=LEASE, timeout=3, retry=Retry(max_attempts=1))
async def export_table(table: str) -> str:
    """Now and then take longer than the time-out."""
    await asyncio.sleep(random.choice([0.5, 1, 30]))
    return f"{table}.parquet"


# -- a command, which outlives its worker ------------------------------------------------------------------------------
_RENDER = """
import json, os, sys, time
for part in range(1, 9):
    print(f"{sys.argv[1]}: scene {part} of 8", flush=True)
    time.sleep(1)
with open(os.environ["LEASEHOLD_RESULT"], "w") as file:
    json.dump({"video": sys.argv[1], "seconds": 42}, file)
"""


@app.command(queue="media", lease=LEASE, stop_grace="2s", timeout="2m")
def render_video(name: str) -> Command:
    """Run a program. If its worker dies, the program goes on and the next worker adopts it."""
    return Command([sys.executable, "-c", _RENDER, name])


# -- people -----------------------------------------------------------------------------------------------------------
class Approval(BaseModel):
    approve: bool
    comment: str = Field(default="", max_length=200)


@app.task(lease=LEASE, tags=("people",))
async def refund(ctx: Context, customer: str, euros: int) -> str:
    try:
        answer = await ctx.ask("approval", f"Refund {euros} € to {customer}?", Approval, timeout="1h")
    except QuestionExpired:
        return "no answer came"
    return f"refunded {euros} €" if answer.approve else f"refused: {answer.comment}"


@app.task(lease=LEASE, tags=("people",))
async def log_in(ctx: Context, shop: str) -> str:
    code = await ctx.ask("code", f"The code that {shop} has sent you, please", str, secret=True)
    return f"logged in to {shop} with a code of {len(code)} characters"


# -- mail: a paused queue ----------------------------------------------------------------------------------------------
@app.task(queue="mail", lease=LEASE)
async def send_newsletter(to: str) -> str:
    await asyncio.sleep(0.1)
    return f"sent to {to}"


@app.task(lease=LEASE)
async def remind(customer: str) -> str:
    return f"{customer} was reminded"


# -- schedules --------------------------------------------------------------------------------------------------------
@app.schedule(every="20s", at_start=True)
@app.task(lease=LEASE)
def refresh_prices() -> dict[str, Any]:
    log.info("asked 3 shops")
    return {"shops": 3, "cheapest": round(random.uniform(8, 12), 2)}


@app.schedule(cron="*/2 * * * *", tz="Europe/Berlin", missed="skip", overlap="replace")
@app.task(lease=LEASE)
def two_minute_report(tick: datetime) -> str:
    return f"report of {tick:%H:%M}"


@app.schedule(cron="30 2 * * 1-5", tz="Europe/Berlin")
@app.task(lease=LEASE, queue="media")
def nightly_backup(tick: datetime) -> str:
    return f"backup of {tick:%d %B}"
