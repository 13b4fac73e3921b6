"""The verbs on slots and rates."""

from __future__ import annotations

from leasehold.domain.closing import Closing
from leasehold.domain.limits import checked_limit_name, checked_number, parse_rate
from leasehold.domain.views import (
    RateRow,
    SlotRow,
)
from leasehold.operations.base import StoreDoor


class LimitOperations(StoreDoor):
    def set_slot(self, name: str, limit: int) -> None:
        checked = checked_number(limit, "limit", 0)
        self._store.set_slot(checked_limit_name(name, "name"), checked)
        self._store.wake()

    def list_slots(self) -> list[SlotRow]:
        return self._all_whole(self._store.list_slots())

    def set_rate(self, key: str, limit: str, *, burst: int = 1) -> None:
        text, spacing = parse_rate(limit)
        checked = checked_number(burst, "burst", 1)
        self._store.set_rate(checked_limit_name(key, "key"), text, spacing, checked)
        self._store.wake()

    def close_rate(self, key: str, closing: Closing) -> None:
        """No job of this key starts until then, or until it is opened."""
        name = checked_limit_name(key, "key")
        self._store.close_rate(name, closing.actor, closing.reason, closing.length, closing.until)

    def open_rate(self, key: str) -> bool:
        return self._woken(self._store.open_rate(checked_limit_name(key, "key")))

    def list_rates(self) -> list[RateRow]:
        return self._all_whole(self._store.list_rates())
