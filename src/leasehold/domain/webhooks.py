"""Webhooks: the targets, the messages and their signatures (as Standard Webhooks defines them)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from leasehold.domain.checks.names import checked_name
from leasehold.domain.checks.texts import checked_text
from leasehold.domain.errors import InvalidInput, InvalidSignature
from leasehold.domain.frozen import frozen
from leasehold.domain.hooks import WEBHOOK_TASK, Listener, Notification, checked_events
from leasehold.domain.job import NewJob
from leasehold.domain.policy import Policy

QUEUE = "leasehold.webhooks"
PREFIX = "whsec_"
FEWEST_BYTES = 16
LONGEST_URL = 2000
TOLERANCE = 300.0
"""Seconds by which the timestamp of a message may be off."""

POLICY = Policy(max_attempts=12, backoff=5.0, max_delay=3600.0)
"""Retries for about two hours; then the delivery has failed, and can be resumed by hand."""

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"

Source = Literal["code", "set"]


@frozen
class Webhook:
    name: str
    url: str
    secret: str = field(repr=False)
    allow_private: bool = False
    """Whether the URL may be in a private network, and without TLS."""
    source: Source = "set"
    changed_at: datetime | None = field(default=None, compare=False)

    @property
    def listener(self) -> str:
        return listener_of(self.name)


def listener_of(name: str) -> str:
    return f"webhook:{name}"


def checked_webhook(
    name: str, url: str, secret: str, *, allow_private: bool = False, source: Source = "set"
) -> Webhook:
    checked_name(name, "name")
    check_url(url, allow_private)
    key_of(secret)
    return Webhook(name, url, secret, allow_private, source)


def listeners_for(webhook: Webhook, events: Sequence[str], tasks: Sequence[str] = ()) -> list[Listener]:
    wanted = [checked_name(task, "tasks") for task in tasks] or [""]
    names = checked_events(events, "events")
    return [Listener(webhook.listener, event, task, webhook=True) for event in names for task in wanted]


def check_url(url: str, allow_private: bool) -> None:
    parts = urlsplit(checked_text(url, "url", LONGEST_URL))
    if parts.scheme not in ("https", "http") or not parts.hostname or any(c.isspace() for c in url):
        raise InvalidInput("url", f"{url!r} is not the URL of a web server", "give https://host/path")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("url", "carries a user name or a password", "leave them out: requests are signed")
    if parts.fragment:
        raise InvalidInput("url", "has a fragment, which is never sent", "leave it out")
    try:
        _ = parts.port
    except ValueError as error:
        raise InvalidInput("url", str(error), "give a port from 1 to 65535") from None
    if parts.scheme == "http" and not allow_private:
        raise InvalidInput("url", "is not encrypted", "use https, or allow_private in your own network")


def new_secret(randomness: bytes) -> str:
    return PREFIX + base64.b64encode(randomness).decode()


def key_of(secret: str) -> bytes:
    """Return the key: a `whsec_…` secret is base64, any other text is used as it is."""
    checked_text(secret, "secret", 500)
    try:
        key = (
            base64.b64decode(secret[len(PREFIX) :], validate=True)
            if secret.startswith(PREFIX)
            else secret.encode()
        )
    except binascii.Error:
        raise InvalidInput("secret", "is not base64 behind whsec_", "let Leasehold make one") from None
    if len(key) < FEWEST_BYTES:
        raise InvalidInput("secret", f"has {len(key)} bytes", f"use at least {FEWEST_BYTES}")
    return key


def body_of(event: Notification) -> str:
    facts = {
        "job_id": event.job_id or None,
        "task": event.task or None,
        "queue": event.queue or None,
        "attempt": event.attempt,
        "group": event.group,
        "tenant": event.tenant,
        "detail": event.detail,
        **event.data,
    }
    at = None if event.at is None else event.at.isoformat()
    return json.dumps({"type": event.name, "timestamp": at, "data": facts}, ensure_ascii=False)


def delivery_job(job_id: str, webhook: str, event: Notification) -> NewJob:
    """Build the job that posts this notification. The secret and the address are looked up when it runs."""
    args = json.dumps({"webhook": webhook, "event_id": event.id, "body": body_of(event)})
    return NewJob(id=job_id, task=WEBHOOK_TASK, args=args, queue=QUEUE, policy=POLICY)


def signed_headers(event_id: str, body: bytes, secret: str, now: float) -> dict[str, str]:
    timestamp = str(int(now))
    return {
        ID: event_id,
        TIMESTAMP: timestamp,
        SIGNATURE: f"v1,{_signature(event_id, timestamp, body, secret)}",
    }


class Headers(Protocol):
    """The headers of a request. Frameworks have their own classes for them, and not all are a Mapping."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return each name with its value."""


def verified(
    headers: Headers, body: bytes | str, secret: str, now: float, tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """Return the posted notification, if it was signed with the secret and is recent. Raises InvalidSignature."""
    found = {name.lower(): value for name, value in headers.items()}
    raw = body.encode() if isinstance(body, str) else bytes(body)
    try:
        event_id, timestamp, signatures = found[ID], found[TIMESTAMP], found[SIGNATURE]
        age = now - int(timestamp)
    except (KeyError, ValueError):
        raise InvalidSignature(
            "headers", f"{ID}, {TIMESTAMP} or {SIGNATURE} is missing or no number"
        ) from None
    if abs(age) > tolerance:
        raise InvalidSignature(TIMESTAMP, f"is {abs(age):.0f} s off: an old message may have been sent again")
    wanted = _signature(event_id, timestamp, raw, secret).encode()
    given = [one.partition(",") for one in signatures.split()]
    if not any(version == "v1" and hmac.compare_digest(text.encode(), wanted) for version, _, text in given):
        raise InvalidSignature(SIGNATURE, "was not made with this secret from this body")
    try:
        message: dict[str, Any] = json.loads(raw)
    except ValueError:
        raise InvalidSignature("body", "is not JSON") from None
    return {"id": event_id, **message}


def _signature(event_id: str, timestamp: str, body: bytes, secret: str) -> str:
    signed = b".".join([event_id.encode(), timestamp.encode(), body])
    return base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()
