"""For those who receive webhooks: `event = verify(request.headers, request.body, secret)`."""

from __future__ import annotations

import time
from typing import Any

from leasehold.domain.webhooks import TOLERANCE, Headers, verified

__all__ = ["verify"]


def verify(
    headers: Headers, body: bytes | str, secret: str, *, tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """The event that was posted: `id`, `type`, `timestamp`, `data`. Raises `InvalidSignature` if it was not signed with
    this secret, or longer ago than `tolerance` seconds. Give the body as it came, not parsed. An event may come twice:
    its `id` is the same then."""
    return verified(headers, body, secret, time.time(), tolerance)
