"""The Leasehold app, and what all its jobs share."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2

from examples.mail_assistant.db import Database
from examples.mail_assistant.gmail import Gmail
from examples.mail_assistant.llm import LoggedModel, Model, OpenAIModel, RuleModel
from examples.mail_assistant.settings import settings
from leasehold import Fail, Leasehold, SyncContext, Worker

app = Leasehold(os.environ.get("LEASEHOLD_URL") or "sqlite:///mail_assistant.db")


@dataclass(frozen=True)
class User:
    id: str
    email: str
    gmail_token: str
    labels: dict[str, str]
    """Gmail's id of each of our labels."""
    settings: dict[str, Any]

    @classmethod
    def read(cls, row: dict[str, Any]) -> User:
        return cls(
            row["id"],
            row["email"],
            row["gmail_token"],
            json.loads(row["labels"]),
            json.loads(row["settings"]),
        )


@dataclass(frozen=True)
class Resources:
    """Opened once for a worker; handlers find it as `ctx.resources`."""

    db: Database
    http: httpx2.Client
    model: Model

    @classmethod
    def open(cls, engine: Leasehold = app) -> Resources:
        engine.upgrade()
        db = Database(engine.url)
        db.create()
        http = httpx2.Client(timeout=60, trust_env=False)
        model: Model = RuleModel()
        if settings.llm_url:
            model = OpenAIModel(http, settings.llm_url, settings.llm_model, settings.llm_api_key)
        return cls(db, http, model)

    def close(self) -> None:
        self.http.close()
        self.db.close()

    def active_users(self) -> list[User]:
        return [User.read(row) for row in self.db.rows("SELECT * FROM users WHERE is_active = 1 ORDER BY id")]

    def gmail_of(self, user: User) -> Gmail:
        return Gmail(self.http, settings.gmail_url, user.email, user.gmail_token)


@app.lifespan
async def resources() -> AsyncIterator[Resources]:
    opened = await asyncio.to_thread(Resources.open)
    try:
        yield opened
    finally:
        opened.close()


@dataclass(frozen=True)
class Desk:
    """What one job works with: its user, that user's mailbox, the tables and the model."""

    ctx: SyncContext
    user: User
    gmail: Gmail
    db: Database
    llm: LoggedModel

    @classmethod
    def open(cls, ctx: SyncContext, user_id: str) -> Desk:
        """A job of a user who does not exist fails at once: to try it again would not help."""
        shared: Resources = ctx.resources
        row = shared.db.row("SELECT * FROM users WHERE id = ?", user_id)
        if row is None:
            raise Fail(f"User {user_id} not found")
        user = User.read(row)
        llm = LoggedModel(shared.model, shared.db, user_id, ctx.job_id)
        return cls(ctx, user, shared.gmail_of(user), shared.db, llm)

    def email(self, thread_id: str) -> dict[str, Any] | None:
        """The record of a thread."""
        return self.db.row(
            "SELECT * FROM emails WHERE user_id = ? AND gmail_thread_id = ?", self.user.id, thread_id
        )

    def label(self, name: str) -> str:
        return self.user.labels[name]


def mail_worker() -> Worker:
    """N jobs at once (all our tasks are plain functions, so N threads); a shutdown waits for the current ones."""
    return app.worker(concurrency=0, threads=settings.workers, shutdown_grace=None, retention="7d")
