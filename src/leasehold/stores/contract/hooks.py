"""Who listens, and what is delivered to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from leasehold.domain.hooks import Delivery, Happened, Listener, ListenerRow
from leasehold.domain.job import NewJob
from leasehold.domain.webhooks import Webhook


class Hooks(Protocol):
    """What has happened is written for each listener in the transaction in which it happens, whoever did it."""

    def register_listeners(self, listeners: Sequence[Listener], kept: bool = False) -> None:
        """These are all that their names listen to. Unless `kept`, one that is not touched for a day hears nothing
        more."""
        ...

    def touch_listeners(self, names: Sequence[str]) -> None:
        """Their code is still there."""
        ...

    def remove_listener(self, name: str) -> bool:
        """And what waits for it. False: there is none."""
        ...

    def list_listeners(self) -> list[ListenerRow]: ...

    def find_listeners(self) -> list[Listener]:
        """Those who hear of what happens now."""
        ...

    def tell_listeners(self, happened: Sequence[Happened]) -> None:
        """Of what is no move of a job."""
        ...

    def take_events(self, listeners: Sequence[str], limit: int, seconds: float) -> list[Delivery]:
        """Events for these listeners. Who does not drop them in so many seconds has lost them to the next."""
        ...

    def drop_events(self, ids: Sequence[str]) -> None:
        """They were delivered."""
        ...

    def give_back_events(self, ids: Sequence[str]) -> None:
        """They were taken, and nobody was called."""
        ...

    def retry_event(self, event_id: str, seconds: float | None, error: str) -> None:
        """It could not be delivered: again after so many seconds, or (None) never."""
        ...

    def enqueue_events(
        self, listeners: Sequence[str], make_job: Callable[[Delivery], NewJob], limit: int = 100
    ) -> int:
        """Make a job of each event for these listeners: the event is gone in the same transaction. How many."""
        ...

    def forget_listeners(self) -> None:
        """Those whose code was not seen for a day, and what waits for them; also events of a week ago."""
        ...

    def tell_hooks(self) -> None:
        """Tell those who deliver, in any process, that there may be something, or that listeners have changed."""
        ...


class Webhooks(Protocol):
    """Listeners with an address."""

    def set_webhook(self, webhook: Webhook, listeners: Sequence[Listener]) -> None:
        """Make it, or change it: its listeners are these."""
        ...

    def list_webhooks(self) -> list[Webhook]: ...

    def find_webhook(self, name: str) -> Webhook | None: ...

    def remove_webhook(self, name: str) -> bool:
        """And what waits for it. False: there is none."""
        ...
