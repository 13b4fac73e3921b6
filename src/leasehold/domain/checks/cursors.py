"""Cursors: opaque text that says where the next page of a list begins."""

from __future__ import annotations

import base64
import binascii
import json

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidInput

LONGEST_CURSOR = 4000
LARGEST_NUMBER = 2**63 - 1


def cursor_of(*parts: str | int) -> str:
    """Encode the key of the last row of a page."""
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parts_of(cursor: str, *tasks: type[str] | type[int]) -> tuple[str | int, ...]:
    """Decode the key, and check the types of its parts. Raises InvalidInput."""
    try:
        if len(cursor) > LONGEST_CURSOR:
            raise ValueError
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parts = json.loads(text)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(tasks):
        raise InvalidInput("cursor", "is not a cursor of this list", "give `next` of the previous page")
    for part in parts:
        # A caller may have made the cursor up: every store must be able to compare with it.
        if isinstance(part, str):
            check_text(part, "cursor")
        elif not 0 <= part <= LARGEST_NUMBER:
            raise InvalidInput("cursor", "is out of range", "give `next` of the previous page")
    return tuple(parts)
