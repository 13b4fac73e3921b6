"""The verbs on slots and rates."""

from __future__ import annotations

from leasehold.domain.closing import Closing
from leasehold.domain.limits import checked_burst, checked_limit_name, checked_number, parse_rate
from leasehold.domain.views import (
    RateRow,
    SlotRow,
)
from leasehold.operations.base import StoreDoor


class LimitOperations(StoreDoor):
    def set_slot(self, name: str, limit: int, *, actor: str | None = None) -> None:
        name, checked = checked_limit_name(name, "name"), checked_number(limit, "limit", 0)
        with self._recorded("slot.set", name, actor, limit=checked) as store:
            store.set_slot(name, checked)
        self._store.wake()

    def list_slots(self) -> list[SlotRow]:
        return self._all_whole(self._store.list_slots())

    def set_rate(self, key: str, limit: str, *, burst: int = 1, actor: str | None = None) -> None:
        text, spacing = parse_rate(limit)
        key, checked = checked_limit_name(key, "key"), checked_burst(burst, "burst", spacing)
        with self._recorded("rate.set", key, actor, limit=text, burst=checked) as store:
            store.set_rate(key, text, spacing, checked)
        self._store.wake()

    def close_rate(self, key: str, closing: Closing) -> None:
        """No job of this key starts until then, or until it is opened."""
        name = checked_limit_name(key, "key")
        told = {"reason": closing.reason, "seconds": closing.length, "until": closing.until}
        with self._recorded("rate.close", name, closing.actor, **told) as store:
            store.close_rate(name, closing.actor, closing.reason, closing.length, closing.until)

    def open_rate(self, key: str, *, actor: str | None = None) -> bool:
        name = checked_limit_name(key, "key")
        with self._recorded("rate.open", name, actor) as store:
            opened = store.open_rate(name)
        return self._woken(opened)

    def list_rates(self) -> list[RateRow]:
        return self._all_whole(self._store.list_rates())
