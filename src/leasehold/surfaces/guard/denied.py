"""A request that goes no further."""

from __future__ import annotations

from typing import Literal

Reason = Literal[
    "wrong-host",
    "foreign-origin",
    "unauthenticated",
    "scope-missing",
    "queue-limited",
    "too-large",
    "too-deep",
    "too-many-requests",
]


STATUSES: dict[Reason, int] = {
    "wrong-host": 421,
    "foreign-origin": 403,
    "unauthenticated": 401,
    "scope-missing": 403,
    "queue-limited": 403,
    "too-large": 413,
    "too-deep": 422,
    "too-many-requests": 429,
}
"""In HTTP."""


class Denied(Exception):
    def __init__(self, reason: Reason, detail: str, retry_after: int | None = None) -> None:
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after
        """Seconds, where it may do to come back."""
        super().__init__(detail)

    @property
    def headers(self) -> dict[str, str]:
        """That go with the refusal."""
        sent = {}
        if self.reason == "unauthenticated":
            sent["WWW-Authenticate"] = 'Bearer realm="leasehold"'
        if self.retry_after is not None:
            sent["Retry-After"] = str(self.retry_after)
        return sent
