"""The delivery task of webhooks, which every worker has once there is a webhook."""

from __future__ import annotations

import functools
import http.client
import secrets
import time
from typing import TYPE_CHECKING

from leasehold.domain.checks.ids import make_id
from leasehold.domain.hooks import WEBHOOK_TASK, Delivery
from leasehold.domain.job import NewJob
from leasehold.domain.signals import Fail
from leasehold.domain.webhooks import QUEUE, Webhook, delivery_job, signed_headers
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import TaskSettings
from leasehold.threads import Threads, to_thread
from leasehold.worker.http_post import Refusal, post

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

GONE = 410

_posts = Threads(16, "post")
"""Separate threads: receivers may be slow."""


class Undelivered(Exception):
    """The receiver did not accept it: the delivery is retried."""


def make_delivery(delivery: Delivery) -> NewJob:
    job_id = make_id(time.time_ns() // 1_000_000, secrets.token_bytes(10))
    return delivery_job(job_id, delivery.listener.partition(":")[2], delivery.event)


def webhook_task(store: JobStore) -> TaskDefinition:
    async def deliver(webhook: str, event_id: str, body: str) -> str:
        """Runs in a thread, which ends by itself: `post` limits its total time."""
        found = await to_thread(store.find_webhook, webhook)
        if found is None:
            return "the webhook was removed"
        return await _posts.call(_deliver, found, event_id, body)

    return TaskDefinition(deliver, WEBHOOK_TASK, TaskSettings(queue=QUEUE, lease=60.0))


def _deliver(webhook: Webhook, event_id: str, body: str) -> str:
    raw = body.encode()
    headers = signed_headers(event_id, raw, webhook.secret, time.time())
    headers |= {"content-type": "application/json", "user-agent": "leasehold"}
    send = functools.partial(post, webhook.url, raw, headers, allow_private=webhook.allow_private)
    try:
        status = send()
    except Refusal as refusal:
        raise Fail(str(refusal)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Undelivered(f"{type(error).__name__}: {error}") from None
    if 200 <= status < 300:
        return f"status {status}"
    if 300 <= status < 400:
        raise Fail(f"status {status}: redirects are not followed; register the address that it leads to")
    if status == GONE:
        raise Fail("status 410: the receiver wants no more of them; remove the webhook")
    raise Undelivered(f"status {status}")
