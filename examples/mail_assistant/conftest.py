"""An office for the tests: a mailbox of its own in a running stand-in, a user, and the app on a store of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.mail_assistant import schedules
from examples.mail_assistant.app import Resources, app
from examples.mail_assistant.demo import KINDS, USER_SETTINGS, Kind, World
from examples.mail_assistant.processes import Processes
from examples.mail_assistant.settings import settings
from examples.mail_assistant.users import add_user
from leasehold import Leasehold
from leasehold.testing import Sandbox
from leasehold.types import Job
from tests.conftest import postgres_server

__all__ = ["postgres_server", "schedules"]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def gmail_url() -> Iterator[str]:
    """One stand-in for all tests in this process; every test has a mailbox of its own."""
    with Processes("") as processes:
        processes.start_gmail(push=False)
        yield processes.gmail_url


class Office:
    def __init__(self, box: Sandbox, world: World) -> None:
        self.box, self.world = box, world
        self.shared = Resources.open()
        self.db = self.shared.db
        world.make()
        add_user(self.shared, "1", world.address, world.address, **USER_SETTINGS)

    def receive(self, kind: Kind, **more: Any) -> dict[str, Any]:
        return self.world.receive(kind, **more)

    def run(self, task: Any, **args: Any) -> Job[Any]:
        """One job and what follows from it, to the end."""
        job: Job[Any] = task.enqueue(user_id="1", **args)
        self.box.drain()
        return job.refresh()

    def email(self, thread_id: str) -> dict[str, Any]:
        row = self.db.row("SELECT * FROM emails WHERE gmail_thread_id = ?", thread_id)
        assert row is not None
        return row

    def events(self, thread_id: str) -> list[str]:
        statement = "SELECT event_type FROM email_events WHERE gmail_thread_id = ? ORDER BY id"
        return [row["event_type"] for row in self.db.rows(statement, thread_id)]

    def llm_calls(self, thread_id: str) -> list[str]:
        statement = "SELECT call_type FROM llm_calls WHERE gmail_thread_id = ? ORDER BY id"
        return [row["call_type"] for row in self.db.rows(statement, thread_id)]

    def jobs(self, job_type: str) -> list[dict[str, Any]]:
        return self.db.rows("SELECT * FROM jobs WHERE job_type = ? ORDER BY created_at", job_type)

    def draft_texts(self, thread_id: str) -> list[str]:
        """The bodies of the drafts of a thread."""
        user = self.shared.active_users()[0]
        return [draft.mail.body for draft in self.shared.gmail_of(user).drafts(thread_id)]

    def snapshot(self) -> list[Any]:
        """All that must stay the same when nothing is left to do."""
        tables = ("emails", "email_events", "llm_calls", "agent_runs")
        return [self.world.history_id(), *(self.db.rows(f"SELECT * FROM {table}") for table in tables)]


def place_of(office: Office, kind: Kind = KINDS[0], **more: Any) -> dict[str, Any]:
    """A new message and its place, as a payload has it."""
    message = office.receive(kind, **more)
    return {"message_id": message["id"], "thread_id": message["threadId"]}


@pytest.fixture
def office(
    leasehold_sandbox: Callable[[Leasehold], Sandbox], gmail_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Office]:
    monkeypatch.setattr(settings, "gmail_url", gmail_url)
    office = Office(leasehold_sandbox(app), World(gmail_url, f"user{next(_numbers)}@example.org"))
    yield office
    office.shared.close()
    office.world.http.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for the processes of one test."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/mail.db"
    server = request.getfixturevalue("postgres_server")
    return str(server.create_database(f"mail_{next(_numbers)}"))
