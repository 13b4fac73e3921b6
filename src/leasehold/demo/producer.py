"""Makes the work of `leasehold demo --dashboard`: a few jobs a second, and an operator's action every few seconds."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from leasehold.demo import dashboard_tasks as tasks
from leasehold.demo.dashboard_tasks import app
from leasehold.domain.errors import LeaseholdError
from leasehold.types import State

MOST_LIVE = 150
"""Queued and running jobs at which no new ones are enqueued."""
KEPT_FOR = "10m"
PRUNE_EVERY = 60.0
OPERATE_EVERY = 7.0
SITES = ("example.org", "example.com", "docs.example.net", "shop.example.com")
QUESTIONS = ("Who keeps the lease?", "What does a crash cost?", "Which queue is slow?", "Is it done yet?")
PEOPLE = ("ann@example.org", "bob@example.org", "eve@example.org", "zoë@example.org")
FIRST_GROUP = 42
GROUP_EVERY = 120.0
"""Seconds until the next group begins. Jobs of a group with live jobs are not pruned."""


class Producer:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._groups = itertools.count(FIRST_GROUP)
        self._group = ""
        self._group_until = 0.0
        self._operations = itertools.cycle((self._an_account, self._a_cancel, self._a_lane, self._a_flow))
        self._prune_at = time.monotonic() + PRUNE_EVERY
        self._operate_at = time.monotonic() + 1
        self._mixture: list[tuple[int, Callable[[int], object]]] = [
            (5, lambda n: tasks.fetch_page.enqueue(random.choice(SITES), f"/page/{n}")),
            (2, lambda n: tasks.crawl.enqueue(random.choice(SITES), random.randint(5, 15))),
            (2, lambda n: tasks.research.using(group=self._group).enqueue(random.choice(QUESTIONS))),
            (2, lambda n: tasks.charge_card.enqueue(n, random.randint(100, 90_000))),
            (1, lambda n: tasks.export_table.enqueue(f"orders_{n}")),
            (
                1,
                lambda n: tasks.remind.using(delay=f"{random.randint(1, 20)}m").enqueue(
                    random.choice(PEOPLE)
                ),
            ),
            (1, lambda n: tasks.render_video.enqueue(f"trailer-{n}")),
            (1, lambda n: tasks.fetch_page.using(tenant=tasks.TENANT).enqueue("acme.example", f"/{n}")),
        ]

    def prepare(self) -> None:
        """Make the initial data: something for every page."""
        app.tenants.create(tasks.TENANT, actor="demo")
        app.slots.set("gpu", 2, actor="demo")
        app.rates.set("partner-api", "30/min", actor="demo")
        app.rates.close("partner-api", for_="30m", reason="answered 429", actor="ann")
        app.queues.pause("mail", reason="the provider is down", actor="ann")
        tasks.send_newsletter.enqueue_many([{"to": to} for to in PEOPLE])
        tasks.remind.using(hold=True).enqueue("held@example.org")
        tasks.remind.using(delay="2h", priority="low").enqueue("later@example.org")
        tasks.crawl.enqueue(SITES[0], 40)
        self._a_group()
        self._questions()
        self._a_flow()
        self._an_account()
        for _ in range(3):
            self._enqueue_one()

    def step(self) -> None:
        """Do one step: enqueue, operate, prune. Called about twice a second."""
        now = time.monotonic()
        waiting = app.count()
        if waiting[State.QUEUED] + waiting[State.RUNNING] < MOST_LIVE:
            self._enqueue_one()
        if now > self._group_until:
            self._a_group()
        if now > self._operate_at:
            self._operate_at = now + OPERATE_EVERY
            next(self._operations)()
            self._questions()
        if now > self._prune_at:
            self._prune_at = now + PRUNE_EVERY
            app.prune(KEPT_FOR, budgets=True, actor="demo")
            app.tenant(tasks.TENANT).prune(KEPT_FOR, actor="demo")

    def _enqueue_one(self) -> None:
        weights = [weight for weight, _ in self._mixture]
        ((_, enqueue),) = random.choices(self._mixture, weights)
        enqueue(next(self._numbers))

    def _a_group(self) -> None:
        self._group_until = time.monotonic() + GROUP_EVERY
        self._group = f"research-{next(self._groups)}"
        app.group(self._group).budget(tokens=1_000_000, actor="demo")

    def _questions(self) -> None:
        """Keep two questions open; an answered one is followed by the next."""
        open_or_coming = app.jobs(state=("queued", "running", "waiting"), task="refund", limit=5).jobs
        if not open_or_coming:
            tasks.refund.enqueue(random.choice(PEOPLE), random.randint(5, 500))
        if not app.jobs(state=("queued", "running", "waiting"), task="log_in", limit=5).jobs:
            tasks.log_in.enqueue(random.choice(SITES))

    def _a_flow(self) -> None:
        """Enqueue a DAG and a chain."""
        flow = app.dag()
        for source in ("archive", "forum", "paper"):
            flow.add(source, tasks.read_source.using(group=self._group).bind(source))
        flow.add("summary", tasks.summarize.using(group=self._group), after=["archive", "forum", "paper"])
        flow.enqueue()
        today = datetime.now(UTC).strftime("%Y-%m-%d")
        app.chain(tasks.load_orders.bind(today), tasks.post_totals).enqueue()

    def _an_account(self) -> None:
        for account in (1, 2, 3):
            if len(app.jobs(state="queued", task="sync_account", limit=20).jobs) < 12:
                for part in ("profile", "invoices", "messages"):
                    tasks.sync_account.enqueue(account, part)

    def _a_cancel(self) -> None:
        """Cancel a delayed job, and jobs that are paused over their budget."""
        for job in app.jobs(state="queued", task="remind", limit=1).jobs:
            self._cancel(job.id, "called them instead", "bob")
        for job in app.jobs(state="paused", task="research", limit=50).jobs[3:]:
            self._cancel(job.id, "too expensive", "ann")

    def _cancel(self, job_id: str, reason: str, actor: str) -> None:
        with contextlib.suppress(LeaseholdError):  # its state may have changed meanwhile
            app.get(job_id).cancel(reason, actor=actor)

    def _a_lane(self) -> None:
        """Skip a failed job that halts a lane, which then goes on."""
        for lane in app.lanes.list():
            job = app.get(lane.job_id)
            if job.state == "failed":
                with contextlib.suppress(LeaseholdError):
                    job.skip("entered by hand", actor="bob")
                return
