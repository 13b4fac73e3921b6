"""Taking on a user: the labels in the mailbox, and the record here."""

from __future__ import annotations

import json
from typing import Any

from examples.mail_assistant import labels
from examples.mail_assistant.app import Resources
from examples.mail_assistant.db import upsert
from examples.mail_assistant.gmail import Gmail
from examples.mail_assistant.settings import settings

DEFAULT_SETTINGS: dict[str, Any] = {
    "blacklist": [],
    "contacts": {},
    "communication_styles": {"default": "friendly"},
    "routes": [],
}
"""`blacklist`: senders never answered. `contacts`: sender → style. `routes`: see `router.py`."""


def add_user(shared: Resources, user_id: str, email: str, token: str, **own: Any) -> None:
    gmail = Gmail(shared.http, settings.gmail_url, email, token)
    values = {
        "id": user_id,
        "email": email,
        "gmail_token": token,
        "is_active": 1,
        "labels": json.dumps(gmail.ensure_labels(labels.ALL)),
        "settings": json.dumps(DEFAULT_SETTINGS | own),
    }
    with shared.db.transaction() as connection:
        upsert(connection, "users", ("id",), values)
