"""Rows that more than one place writes."""

from __future__ import annotations

from typing import Any

from examples.mail_assistant.app import Desk
from examples.mail_assistant.db import now, run, upsert
from examples.mail_assistant.gmail import Mail


def save_email(
    connection: Any, desk: Desk, mail: Mail, classification: str, reasoning: str, status: str
) -> None:
    """The record of a thread. A new classification forgets the draft, and keeps the count of reworks."""
    values = {
        "user_id": desk.user.id,
        "gmail_thread_id": mail.thread_id,
        "gmail_message_id": mail.id,
        "sender_email": mail.sender,
        "subject": mail.subject,
        "classification": classification,
        "reasoning": reasoning,
        "status": status,
        "draft_id": None,
        "updated_at": now(),
    }
    upsert(connection, "emails", ("user_id", "gmail_thread_id"), values)


def set_drafted(connection: Any, desk: Desk, thread_id: str, draft_id: str) -> None:
    statement = (
        "UPDATE emails SET status = 'drafted', draft_id = ?, updated_at = ?"
        " WHERE user_id = ? AND gmail_thread_id = ?"
    )
    run(connection, statement, draft_id, now(), desk.user.id, thread_id)


def begin_agent_run(desk: Desk, mail: Mail, profile: str, route_rule: str) -> None:
    """One record a job, however often it is tried."""
    values = {
        "job_id": desk.ctx.job_id,
        "user_id": desk.user.id,
        "gmail_thread_id": mail.thread_id,
        "gmail_message_id": mail.id,
        "profile": profile,
        "route_rule": route_rule,
        "status": "running",
        "tool_calls": "[]",
        "iterations": 0,
        "created_at": now(),
    }
    with desk.db.transaction() as connection:
        upsert(connection, "agent_runs", ("job_id",), values)
