"""Verbs and reads of slots and rates."""

from __future__ import annotations

from leasehold.domain.limits import PauseWindow, checked_burst, parse_rate
from leasehold.domain.records import RateRow, SlotRow
from leasehold.operations.arguments import Actor, Burst, Duration, Instant, LimitName, RateText, Reason, Units
from leasehold.operations.queues import PAUSE_EXAMPLE, pause_detail
from leasehold.operations.verb import Backend, notify_workers, read, verb


@verb(
    "slot.set",
    scope="admin",
    guard="all queues",
    http="PUT /v1/slots/{name:leasehold_name}",
    status=204,
    after=notify_workers,
    examples={"limit": 4},
)
def set_slot(backend: Backend, name: LimitName, limit: Units, *, actor: Actor = None) -> None:
    """Let at most `limit` units be in use at once, across all workers."""
    backend.store.set_slot(name, limit)


@read("slots.list", guard="all queues", http="GET /v1/slots")
def list_slots(backend: Backend) -> list[SlotRow]:
    """List slots: limit, units in use, and by which jobs."""
    return backend.store.list_slots()


@verb(
    "rate.set",
    scope="admin",
    guard="all queues",
    http="PUT /v1/rates/{key:leasehold_name}",
    status=204,
    after=notify_workers,
    rules=lambda backend, given: checked_burst(given["burst"], "burst", parse_rate(given["limit"])[1]),
    examples={"limit": "60/min", "burst": 1},
)
def set_rate(
    backend: Backend, key: LimitName, limit: RateText, *, burst: Burst = 1, actor: Actor = None
) -> None:
    """Set how often jobs of a key may start, evenly spaced."""
    backend.store.set_rate(key, limit, parse_rate(limit)[1], burst)


@verb(
    "rate.close",
    scope="operate",
    guard="all queues",
    http="POST /v1/rates/{key:path}/close",
    status=204,
    audit=pause_detail,
    examples=PAUSE_EXAMPLE,
)
def close_rate(
    backend: Backend,
    key: LimitName,
    *,
    for_: Duration | None = None,
    until: Instant | None = None,
    reason: Reason = None,
    actor: Actor = None,
) -> None:
    """Close a rate: none of its jobs start; running jobs continue."""
    backend.store.close_rate(key, actor, reason, PauseWindow(for_=for_, until=until).length, until)


@verb(
    "rate.open",
    scope="operate",
    guard="all queues",
    http="POST /v1/rates/{key:path}/open",
    after=notify_workers,
)
def open_rate(backend: Backend, key: LimitName, *, actor: Actor = None) -> bool:
    """Open a rate: jobs of this key start again."""
    return backend.store.open_rate(key)


@read("rates.list", guard="all queues", http="GET /v1/rates")
def list_rates(backend: Backend) -> list[RateRow]:
    """List rates: limit, when the next job may start, and who closed it."""
    return backend.store.list_rates()
