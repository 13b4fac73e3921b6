"""Statuses and messages of pages from our errors. The one table of statuses."""

from __future__ import annotations

import logging

from leasehold.domain.errors import (
    GroupOnHold,
    InvalidInput,
    JobError,
    JobNotFound,
    LeaseholdError,
    ReadTooSlow,
    ResultMissing,
    ScheduleNotFound,
    StoreError,
    TenantNotFound,
)
from leasehold.surfaces.guard.denied import STATUSES, Denied

logger = logging.getLogger("leasehold.dashboard")

_ERRORS: tuple[tuple[type[LeaseholdError], int], ...] = (
    (JobNotFound, 404),
    (ScheduleNotFound, 404),
    (TenantNotFound, 404),
    (ResultMissing, 404),
    (InvalidInput, 422),
    (JobError, 409),
    (GroupOnHold, 409),
    (StoreError, 503),
    (LeaseholdError, 500),
)
"""The first row that fits an error counts."""


def describe(error: Exception) -> tuple[int, str]:
    """The status and the message. An unexpected error is logged; the page shows no details of it."""
    match error:
        case Denied():
            return STATUSES[error.reason], error.detail
        case ReadTooSlow():
            logger.warning("%s", error)
            return 503, f"The database took more than {error.seconds:g} s to read that. Narrow the filter."
        case StoreError():
            logger.error("%s: %s", type(error).__name__, error)
            return 503, "The database is unreachable or not ready. See the server's log."
        case LeaseholdError():
            return next(status for class_, status in _ERRORS if isinstance(error, class_)), str(error)
        case _:
            logger.error("a page failed", exc_info=error)
            return 500, "Something went wrong. See the server's log."
