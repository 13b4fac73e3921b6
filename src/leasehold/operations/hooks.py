"""The verbs on hooks and webhooks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from leasehold.domain.checks.ids import make_id
from leasehold.domain.checks.names import checked_name
from leasehold.domain.errors import InvalidInput
from leasehold.domain.hooks import HookEvent, ListenerRow
from leasehold.domain.job import Job
from leasehold.domain.webhooks import Webhook, checked_webhook, delivery_job, listeners_for, new_secret
from leasehold.operations.base import StoreDoor


class HookOperations(StoreDoor):
    def list_listeners(self) -> list[ListenerRow]:
        return self._store.list_listeners()

    def remove_listener(self, name: str, *, actor: str | None = None) -> None:
        name = checked_name(name, "name")
        with self._recorded("hook.remove", name, actor) as store:
            if not store.remove_listener(name):
                raise InvalidInput(
                    "name", f"no hook is named {name!r}", "list them with leasehold webhooks hooks list"
                )
        self._store.tell_hooks()

    def list_webhooks(self) -> list[Webhook]:
        return self._store.list_webhooks()

    def set_webhook(
        self,
        name: str,
        url: str,
        events: Sequence[str],
        *,
        kinds: Sequence[str] = (),
        secret: str | None = None,
        allow_private: bool = False,
        actor: str | None = None,
    ) -> Webhook:
        """Without a secret one is made: the answer is the only place where it is told."""
        given = secret or new_secret(secrets.token_bytes(32))
        webhook = checked_webhook(name, url, given, allow_private=allow_private)
        listeners = listeners_for(webhook, events, kinds)
        # The path and the query of an address may be a secret.
        told = {"host": urlsplit(url).hostname, "events": list(events), "kinds": list(kinds)}
        with self._recorded("webhook.set", name, actor, **told, allow_private=allow_private) as store:
            store.set_webhook(webhook, listeners)
        self._store.tell_hooks()
        return webhook

    def remove_webhook(self, name: str, *, actor: str | None = None) -> None:
        name = checked_name(name, "name")
        with self._recorded("webhook.remove", name, actor) as store:
            if not store.remove_webhook(name):
                raise _no_webhook(name)
        self._store.tell_hooks()

    def try_webhook(self, name: str, *, actor: str | None = None) -> Job:
        """A delivery of an event called `test`, by the next worker."""
        name = checked_name(name, "name")
        event = HookEvent("test", "", "", "", 0, "a test", id=secrets.token_hex(16), at=self._store.now())
        job_id = make_id(time.time_ns() // 1_000_000, secrets.token_bytes(10))
        with self._recorded("webhook.test", name, actor, job=job_id) as store:
            if store.find_webhook(name) is None:
                raise _no_webhook(name)
            store.enqueue([delivery_job(job_id, name, event)])
        return self._store.get(job_id)


def _no_webhook(name: str) -> InvalidInput:
    return InvalidInput("name", f"no webhook is named {name!r}", "list them with leasehold webhooks list")
