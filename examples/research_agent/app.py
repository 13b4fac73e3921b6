"""The Leasehold app, and the document's words for what it holds."""

from __future__ import annotations

import os

from leasehold import Leasehold

from .settings import ACADEMIC_RATES, ENGINE_POLICY, SLOT_LIMITS

app = Leasehold(os.environ.get("LEASEHOLD_URL") or "sqlite:///research.db")

STATES = {
    "pending": "queued",
    "queued": "queued",
    "running": "running",
    "waiting": "awaiting_auth",
    "paused": "queued",
    "succeeded": "completed",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "cancelled",
}
"""The engine's states in the document's words. Nothing of this application pauses single jobs."""


def set_limits() -> None:
    """Slots and rates are rows in the database: they hold for all workers together, and may be changed
    while they run."""
    for slot, limit in SLOT_LIMITS.items():
        app.slots.set(slot, limit)
    for engine, rate in ENGINE_POLICY.items():
        app.rates.set(f"serp:{engine}", rate, burst=2)
    for api, rate in ACADEMIC_RATES.items():
        app.rates.set(api, rate, burst=2)
