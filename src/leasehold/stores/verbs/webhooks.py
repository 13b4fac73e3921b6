"""Webhooks: listeners with an address. Their secrets leave the store only for signing."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.domain.hooks import Listener
from leasehold.domain.webhooks import Webhook, listener_of
from leasehold.stores.database.audit import changed
from leasehold.stores.database.database import Session
from leasehold.stores.verbs.hooks import HookVerbs, drop_listener, file_listeners
from leasehold.stores.verbs.writing import transaction


class WebhookVerbs(HookVerbs):
    """Listeners with an address."""

    @transaction
    def set_webhook(self, session: Session, webhook: Webhook, listeners: Sequence[Listener]) -> None:
        """Create or change a webhook; these are its listeners."""
        session.run(
            "set_webhook",
            name=webhook.name,
            url=webhook.url,
            signing_key=webhook.secret,
            allow_private=webhook.allow_private,
            source=webhook.source,
        )
        file_listeners(session, listeners, kept=webhook.source == "set")

    def list_webhooks(self) -> list[Webhook]:
        """All webhooks."""
        return [Webhook(secret=row.pop("signing_key"), **row) for row in self._rows("list_webhooks")]

    def find_webhook(self, name: str) -> Webhook | None:
        """The webhook, or None."""
        return next((webhook for webhook in self.list_webhooks() if webhook.name == name), None)

    @transaction
    def remove_webhook(self, session: Session, name: str) -> bool:
        """Delete a webhook and its waiting events. False: there is no such webhook."""
        drop_listener(session, listener_of(name))
        return changed(bool(session.tuples("drop_webhook", name=name)))
