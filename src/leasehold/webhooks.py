"""Verifies webhooks that you receive: `event = verify(request.headers, request.body, secret)`."""

from __future__ import annotations

import time
from typing import Any

from leasehold.domain.hooks import CLOCK_TOLERANCE, Headers, verified

__all__ = ["verify"]


def verify(
    headers: Headers, body: bytes | str, secret: str, *, tolerance: float = CLOCK_TOLERANCE
) -> dict[str, Any]:
    """Return the posted event: `id`, `type`, `timestamp`, `data`. Raises `InvalidSignature` if the event was not signed
    with this secret, or longer ago than `tolerance` seconds. Pass the raw body, not a parsed one. An event may arrive
    twice, with the same `id`."""
    return verified(headers, body, secret, time.time(), tolerance)
