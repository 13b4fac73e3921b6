"""The web side: notifications from Pub/Sub, a sync by hand, and the worker in the same process."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, HTTPException

from examples.mail_assistant import schedules  # registers what is due by itself
from examples.mail_assistant.app import Resources, app, mail_worker
from examples.mail_assistant.tasks import sync

__all__ = ["app", "schedules", "web"]


@asynccontextmanager
async def _lifespan(web: FastAPI) -> AsyncIterator[None]:
    web.state.shared = await asyncio.to_thread(Resources.open)
    try:
        async with mail_worker():
            yield
    finally:
        web.state.shared.close()


web = FastAPI(title="mail assistant", lifespan=_lifespan)


@web.post("/webhook")
def webhook(body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    """A push notification. What is not for us is acknowledged too: Pub/Sub would send it for ever."""
    try:
        notice = json.loads(base64.b64decode(body["message"]["data"]))
        address, history_id = str(notice["emailAddress"]), str(notice["historyId"])
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise HTTPException(400, "this is no notification of Gmail") from None
    user = web.state.shared.db.row("SELECT id FROM users WHERE email = ? AND is_active = 1", address)
    if user is None:
        return {"status": "ignored"}
    return {"status": "ok", "job_id": sync.enqueue(user_id=user["id"], history_id=history_id).id}


@web.post("/api/sync")
def sync_now(user_id: str | None = None, full: bool = False) -> dict[str, Any]:
    """A sync of one user or of all, now. It is never taken for one that runs already and may have read too early."""
    users = [user.id for user in web.state.shared.active_users() if user_id in (None, user.id)]
    if user_id is not None and not users:
        raise HTTPException(404, f"User {user_id} not found")
    by_hand = sync.using(unique=None)
    return {"job_ids": [by_hand.enqueue(user_id=one, history_id="", force_full=full).id for one in users]}
