"""Closing something for a while, as a request."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from leasehold.domain.pause_window import PauseWindow
from leasehold.remote.exchange import given
from leasehold.types import Duration


class PauseOptions(TypedDict, total=False):
    """The keywords of `api.queues.pause`, `api.tasks.pause` and `api.rates.close`."""

    for_: Duration | None
    until: datetime | None
    reason: str | None


def closing_body(options: PauseOptions) -> dict[str, Any]:
    closing = PauseWindow(**options)
    until = None if closing.until is None else closing.until.isoformat()
    return given(**{"for": closing.length}, until=until, reason=closing.reason)
