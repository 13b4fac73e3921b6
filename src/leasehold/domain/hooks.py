"""Hooks: the notifications, and which of them a transition causes; webhooks: targets, messages, signatures."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from leasehold.domain.budgets import BudgetLine
from leasehold.domain.checks.texts import checked_name, checked_text
from leasehold.domain.errors import InvalidInput, InvalidSignature
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job, NewJob
from leasehold.domain.outcome import Move
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.domain.stream import STALLED

SUCCEEDED, LOST, ADOPTED, REQUEUED = "succeeded", "lost", "adopted", "requeued"
LANE_HALTED, BUDGET_EXHAUSTED, GROUP_DONE = "lane_halted", "budget_exhausted", "group_done"
QUESTION = "question"
EVENTS = (
    SUCCEEDED,
    "failed",
    "timed_out",
    "cancelled",
    "paused",
    REQUEUED,
    LOST,
    ADOPTED,
    LANE_HALTED,
    BUDGET_EXHAUSTED,
    GROUP_DONE,
    STALLED,
    QUESTION,
)
"""The notifications that a hook can be registered for."""

WEBHOOK_TASK = "leasehold.webhook"
"""The task that posts to webhooks (also in settle.sql). Its jobs cause no notifications: a failure would cause one."""

LONGEST_ERROR = 2000

MOST_TRIES = 10
LONGEST_DELAY = 300.0


@frozen
class Notification:
    """The argument of a hook. `job_id` is empty for a notification about a group alone."""

    name: str
    job_id: str
    task: str
    queue: str
    attempt: int
    detail: str
    data: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """Stays the same if the notification is delivered a second time."""
    at: datetime | None = None
    group: str | None = None
    tenant: str | None = None
    """None: a job of the app's own store."""


@frozen
class PendingNotification:
    """A notification to be written to the outbox."""

    event: str
    job_id: str | None
    task: str
    queue: str
    attempt: int
    group: str | None
    detail: str
    data: Mapping[str, Any]


@frozen
class Listener:
    """A subscription to one notification, for jobs of one task or (if empty) of all tasks."""

    name: str
    event: str
    task: str = ""
    webhook: bool = False

    def wants(self, happened: PendingNotification) -> bool:
        return self.event == happened.event and self.task in ("", happened.task)


@frozen
class ListenerRow:
    """A listener as lists show it."""

    name: str
    event: str
    task: str
    webhook: bool
    since: datetime
    seen_at: datetime | None
    """When a process last registered it from its code; None: it was made by hand."""
    waiting: int
    """Notifications that have not been delivered yet."""
    given_up: int
    """Notifications whose delivery was given up."""
    last_error: str | None


@frozen
class HookDelivery:
    """A notification taken from the outbox, for one listener."""

    listener: str
    event: Notification
    tries: int


def checked_events(names: Sequence[str], field: str = "on") -> tuple[str, ...]:
    known = ", ".join(map(repr, EVENTS))
    if not names:
        raise InvalidInput(field, "names nothing to wait for", f"known: {known}")
    for name in names:
        if name not in EVENTS:
            raise InvalidInput(field, f"{name!r} is not known", f"known: {known}")
    return tuple(dict.fromkeys(names))


def retry_in(tries: int) -> float | None:
    """Seconds until a notification is delivered again after this many failures of its hook; None: never."""
    return None if tries >= MOST_TRIES else min(LONGEST_DELAY, 2.0 ** (tries - 1))


_BY_STATE = {
    State.SUCCEEDED: SUCCEEDED,
    State.FAILED: "failed",
    State.TIMED_OUT: "timed_out",
    State.CANCELLED: "cancelled",
    State.PAUSED: "paused",
}


def happened_in(moves: Iterable[Move]) -> list[PendingNotification]:
    """Return the notifications that these transitions cause."""
    return [one for move in moves if move.job.task != WEBHOOK_TASK for one in _happened(move)]


def _happened(move: Move) -> Iterator[PendingNotification]:
    before, job = move.before, move.job
    if move.event in (LOST, ADOPTED):
        yield _of(move, move.event)
    if before.state is not job.state:
        if job.state in _BY_STATE:
            yield _of(move, _BY_STATE[job.state])
        elif job.state is State.QUEUED and before.state is not State.PENDING:
            yield _of(move, REQUEUED)
    elif job.state is State.QUEUED and job.available_at != before.available_at:
        yield _of(move, REQUEUED)
    if job.halts_lane and not before.halts_lane:
        yield _of(move, LANE_HALTED)
    if move.asks is not None:
        for question in move.asks.questions:
            yield _question_asked(job, question)


def _of(move: Move, event: str) -> PendingNotification:
    job = move.job
    detail = move.detail or job.reason or (job.error if event != SUCCEEDED else None) or ""
    data: dict[str, Any] = {} if event == SUCCEEDED else _facts(move)
    return PendingNotification(event, job.id, job.task, job.queue, job.attempt, job.group, detail, data)


def _facts(move: Move) -> dict[str, Any]:
    job = move.job
    facts: dict[str, Any] = {"from": move.before.state.value, "state": job.state.value}
    if move.event is not None:
        facts["why"] = move.event
    for name, value in (("actor", move.actor), ("reason", job.reason), ("lane", job.lane)):
        if value is not None:
            facts[name] = value
    if job.error is not None and job.state is not State.SUCCEEDED:
        facts["error"] = job.error[:LONGEST_ERROR]
    if job.state is State.QUEUED:
        facts["available_at"] = job.available_at.isoformat()
    return facts


def _question_asked(job: Job, question: QuestionAsked) -> PendingNotification:
    data = {
        "key": question.key,
        "text": question.text,
        "schema": None if question.schema is None else json.loads(question.schema),
        "secret": question.secret,
        "group": job.group,
    }
    return PendingNotification(
        QUESTION, job.id, job.task, job.queue, job.attempt, job.group, question.text, data
    )


def group_is_done(name: str, version: int) -> PendingNotification:
    detail = "no job of the group is left that could run"
    return PendingNotification(GROUP_DONE, None, "", "", 0, name, detail, {"version": version})


def budget_is_exhausted(
    line: BudgetLine, job_id: str | None, task: str, group: str | None
) -> PendingNotification:
    """Build the notification. `version` only grows: a repeat has the same value, the next breach a higher one."""
    data = {
        "scope": line.scope,
        "name": line.name,
        "unit": line.unit,
        "limit": line.limit,
        "spent": line.spent,
        "version": line.spent,
    }
    return PendingNotification(BUDGET_EXHAUSTED, job_id, task, "", 0, group, line.describe(), data)


# -- webhooks ----------------------------------------------------------------------------------------------------------

WEBHOOK_QUEUE = "leasehold.webhooks"
SECRET_PREFIX = "whsec_"
FEWEST_SECRET_BYTES = 16
LONGEST_URL = 2000
CLOCK_TOLERANCE = 300.0
"""Seconds by which the timestamp of a message may be off."""

WEBHOOK_POLICY = Policy(max_attempts=12, backoff=5.0, max_delay=3600.0)
"""Retries for about two hours; then the delivery has failed, and can be resumed by hand."""

ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"

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
    return SECRET_PREFIX + base64.b64encode(randomness).decode()


def key_of(secret: str) -> bytes:
    """Return the key: a `whsec_…` secret is base64, any other text is used as it is."""
    checked_text(secret, "secret", 500)
    try:
        key = (
            base64.b64decode(secret[len(SECRET_PREFIX) :], validate=True)
            if secret.startswith(SECRET_PREFIX)
            else secret.encode()
        )
    except binascii.Error:
        raise InvalidInput("secret", "is not base64 behind whsec_", "let Leasehold make one") from None
    if len(key) < FEWEST_SECRET_BYTES:
        raise InvalidInput("secret", f"has {len(key)} bytes", f"use at least {FEWEST_SECRET_BYTES}")
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
    return NewJob(id=job_id, task=WEBHOOK_TASK, args=args, queue=WEBHOOK_QUEUE, policy=WEBHOOK_POLICY)


def signed_headers(event_id: str, body: bytes, secret: str, now: float) -> dict[str, str]:
    timestamp = str(int(now))
    return {
        ID_HEADER: event_id,
        TIMESTAMP_HEADER: timestamp,
        SIGNATURE_HEADER: f"v1,{_signature(event_id, timestamp, body, secret)}",
    }


class Headers(Protocol):
    """The headers of a request. Frameworks have their own classes for them, and not all are a Mapping."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return each name with its value."""


def verified(
    headers: Headers, body: bytes | str, secret: str, now: float, tolerance: float = CLOCK_TOLERANCE
) -> dict[str, Any]:
    """Return the posted notification, if it was signed with the secret and is recent. Raises InvalidSignature."""
    found = {name.lower(): value for name, value in headers.items()}
    raw = body.encode() if isinstance(body, str) else bytes(body)
    try:
        event_id, timestamp, signatures = found[ID_HEADER], found[TIMESTAMP_HEADER], found[SIGNATURE_HEADER]
        age = now - int(timestamp)
    except (KeyError, ValueError):
        raise InvalidSignature(
            "headers", f"{ID_HEADER}, {TIMESTAMP_HEADER} or {SIGNATURE_HEADER} is missing or no number"
        ) from None
    if abs(age) > tolerance:
        raise InvalidSignature(
            TIMESTAMP_HEADER, f"is {abs(age):.0f} s off: an old message may have been sent again"
        )
    wanted = _signature(event_id, timestamp, raw, secret).encode()
    given = [one.partition(",") for one in signatures.split()]
    if not any(version == "v1" and hmac.compare_digest(text.encode(), wanted) for version, _, text in given):
        raise InvalidSignature(SIGNATURE_HEADER, "was not made with this secret from this body")
    try:
        message: dict[str, Any] = json.loads(raw)
    except ValueError:
        raise InvalidSignature("body", "is not JSON") from None
    return {"id": event_id, **message}


def _signature(event_id: str, timestamp: str, body: bytes, secret: str) -> str:
    signed = b".".join([event_id.encode(), timestamp.encode(), body])
    return base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()


# -- addresses that a webhook may go to --------------------------------------------------------------------------------

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether the address is public: not private, loopback, link-local (where clouds keep their metadata),
    shared, multicast or reserved, nor an IPv6 address that carries such an IPv4 one."""
    try:
        address: Address = ipaddress.ip_address(text.split("%", 1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return all(_is_public(one) for one in ((mapped,) if mapped else (address, *_carried(address))))


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


def _carried(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address | None] = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]
