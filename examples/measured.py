"""The page of docs/measured that the kill soaks of the applications write."""

from __future__ import annotations

from leasehold import Leasehold
from tests.measured import Page

KILLS = Page(
    "applications.md",
    "The five applications under SIGKILL",
    "Written by `make soak` (the kill tests in examples/). Each application works as real processes while one process\n"
    "after the other gets SIGKILL and is started again. In every run nothing was lost, and nothing was doubled that\n"
    "its document says must not be: the tests check labels, drafts, events, containers and pages one by one.",
    ("application", "database", "kills", "jobs", "runs", "leases lost", "minutes"),
    named_by=2,
)


def ends_of_runs(app: Leasehold) -> dict[str, list[str]]:
    """By the id of its job, how each run has ended."""
    ends: dict[str, list[str]] = {}
    page = app.jobs(limit=100)
    while True:
        for job in page.jobs:
            ends[job.id] = [attempt.outcome for attempt in app.get(job.id).attempts()]
        if page.next is None:
            return ends
        page = app.jobs(limit=100, cursor=page.next)


def database_of(url: str) -> str:
    return "SQLite" if url.startswith("sqlite") else "PostgreSQL"
