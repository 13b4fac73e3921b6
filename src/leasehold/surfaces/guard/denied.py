"""The refusal of a request by the guard, and its HTTP status."""

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
"""The HTTP status of each reason."""


class Denied(Exception):
    def __init__(self, reason: Reason, detail: str, retry_after: int | None = None) -> None:
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after
        """Seconds after which the caller may try again. None: a later try would fail as well."""
        super().__init__(detail)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the refusal."""
        found = {}
        if self.reason == "unauthenticated":
            found["WWW-Authenticate"] = 'Bearer realm="leasehold"'
        if self.retry_after is not None:
            found["Retry-After"] = str(self.retry_after)
        return found
