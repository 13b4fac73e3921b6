"""Verbs and reads of hooks and webhooks."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from leasehold.domain.errors import InvalidInput
from leasehold.domain.hooks import (
    Listener,
    ListenerRow,
    Notification,
    Webhook,
    checked_webhook,
    delivery_job,
    listeners_for,
    new_secret,
)
from leasehold.domain.job import Job
from leasehold.operations.arguments import Actor, Name, NewId
from leasehold.operations.verb import Backend, notify_hooks, read, verb


@read("hooks.list", guard="all queues")
def list_listeners(backend: Backend) -> list[ListenerRow]:
    """List hooks: their events, and notifications that wait or failed."""
    return backend.store.list_listeners()


@verb("hook.remove", scope="admin", guard="all queues", after=notify_hooks, destructive=True)
def remove_listener(backend: Backend, name: Name, *, actor: Actor = None) -> None:
    """Remove a hook and the events that wait for it.
    A worker that has its code registers it again when it starts."""
    if not backend.store.remove_listener(name):
        raise InvalidInput("name", f"no hook is named {name!r}", "list them with leasehold webhooks hooks")


@read("webhooks.list", guard="all queues")
def list_webhooks(backend: Backend) -> list[Webhook]:
    """List webhooks."""
    return backend.store.list_webhooks()


def _made(given: Mapping[str, Any]) -> tuple[Webhook, list[Listener]]:
    """Make the webhook and its listeners, with a new secret if none is given."""
    secret = given["secret"] or new_secret(secrets.token_bytes(32))
    webhook = checked_webhook(given["name"], given["url"], secret, allow_private=given["allow_private"])
    return webhook, listeners_for(webhook, given["events"], given["tasks"])


def _detail(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audit keeps: of the URL only the host, because path and query may be secret."""
    return {
        "host": urlsplit(given["url"]).hostname,
        "events": list(given["events"]),
        "tasks": list(given["tasks"]),
        "allow_private": given["allow_private"],
    }


@verb(
    "webhook.set",
    scope="admin",
    guard="all queues",
    after=notify_hooks,
    rules=lambda backend, given: _made(given),
    audit=_detail,
)
def set_webhook(
    backend: Backend,
    name: str,
    url: str,
    events: Sequence[str],
    *,
    tasks: Sequence[str] = (),
    secret: str | None = None,
    allow_private: bool = False,
    actor: Actor = None,
) -> Webhook:
    """Create or change a webhook. Without a secret it makes a new one, which only this response shows."""
    given = {
        "name": name,
        "url": url,
        "events": events,
        "tasks": tasks,
        "secret": secret,
        "allow_private": allow_private,
    }
    webhook, listeners = _made(given)
    backend.store.set_webhook(webhook, listeners)
    return webhook


@verb("webhook.remove", scope="admin", guard="all queues", after=notify_hooks, destructive=True)
def remove_webhook(backend: Backend, name: Name, *, actor: Actor = None) -> None:
    """Remove a webhook and the events that wait for it."""
    if not backend.store.remove_webhook(name):
        raise _no_webhook(name)


@verb("webhook.test", scope="admin", guard="all queues", audit=lambda given: {"job": given["new_id"]})
def try_webhook(backend: Backend, name: Name, *, new_id: NewId = "", actor: Actor = None) -> Job:
    """Test a webhook: a worker posts an event called `test`. The returned job delivers it and has the outcome."""
    store = backend.store
    if store.find_webhook(name) is None:
        raise _no_webhook(name)
    event = Notification("test", "", "", "", 0, "a test", id=secrets.token_hex(16), at=store.now())
    store.enqueue([delivery_job(new_id, name, event)])
    return store.get(new_id)


def _no_webhook(name: str) -> InvalidInput:
    return InvalidInput("name", f"no webhook is named {name!r}", "list them with leasehold webhooks list")
