"""The application as a test sees it from outside: its processes, the mailbox, and the tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from examples.mail_assistant.app import Resources
from examples.mail_assistant.demo import ADDRESS, USER_SETTINGS, Kind, World
from examples.mail_assistant.processes import Processes, wait_for
from examples.mail_assistant.settings import settings
from examples.mail_assistant.users import add_user
from leasehold import Leasehold

TABLES = ("emails", "email_events", "llm_calls", "agent_runs")


class Outside:
    def __init__(self, processes: Processes, world: World, shared: Resources, engine: Leasehold) -> None:
        self.processes, self.world, self.shared, self.engine = processes, world, shared, engine
        self.db = shared.db

    def jobs(self) -> list[dict[str, Any]]:
        return self.db.rows("SELECT id, job_type, status, attempts FROM jobs")

    def ids(self, status: str) -> set[str]:
        return {str(job["id"]) for job in self.jobs() if job["status"] == status}

    def completed(self) -> int:
        """Jobs besides syncs, whose number depends on how many notifications there are."""
        return sum(job["status"] == "completed" and job["job_type"] != "sync" for job in self.jobs())

    def at_rest(self) -> bool:
        return _at_rest(self.jobs())

    def jobs_at_rest(self) -> list[dict[str, Any]]:
        """All jobs, read at one moment at which none was left to do. The next notification may bring another sync."""
        read: list[dict[str, Any]] = []

        def look() -> bool:
            read[:] = self.jobs()
            return _at_rest(read)

        wait_for(look, "nothing is left to do")
        return read

    def post(self, path: str, **request: Any) -> httpx2.Response:
        return httpx2.post(self.processes.web_url + path, timeout=60, trust_env=False, **request)

    def outcomes(self, job_id: str) -> list[str]:
        """How each run of a job has ended."""
        return [attempt.outcome for attempt in self.engine.get(job_id).attempts()]

    def events(self) -> dict[str, list[str]]:
        """By thread."""
        found: dict[str, list[str]] = {}
        for row in self.db.rows("SELECT gmail_thread_id, event_type FROM email_events ORDER BY id"):
            found.setdefault(row["gmail_thread_id"], []).append(row["event_type"])
        return found

    def snapshot(self) -> list[Any]:
        """All that must stay the same when nothing is left to do."""
        return [self.world.history_id(), *(self.db.rows(f"SELECT * FROM {name}") for name in TABLES)]


def _at_rest(jobs: list[dict[str, Any]]) -> bool:
    return not any(job["status"] in ("pending", "running") for job in jobs)


@contextmanager
def outside(url: str, **environment: str) -> Iterator[Outside]:
    """A running mailbox with one user, and no assistant yet."""
    with Processes(url, **({"GMA_LEASE_SECONDS": "5"} | environment)) as processes, Leasehold(url) as engine:
        processes.start_gmail()
        before, settings.gmail_url = settings.gmail_url, processes.gmail_url
        world = World(processes.gmail_url)
        world.make()
        shared = Resources.open(engine)
        add_user(shared, "1", ADDRESS, ADDRESS, **USER_SETTINGS)
        try:
            yield Outside(processes, world, shared, engine)
        finally:
            settings.gmail_url = before
            shared.close()
            world.http.close()


def story_of(kind: Kind) -> list[str]:
    """The events of a thread that nobody but the assistant touches."""
    if "crisp" in kind.sender:
        return ["agent_processed"]
    return ["classified", "draft_created"] if kind.draft else ["classified"]
