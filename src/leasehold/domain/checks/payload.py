"""Encodes JSON that means the same on every store, or raises an error that names the field; also page cursors.

NaN and infinities are not JSON. PostgreSQL keeps no NUL in text and no lone surrogate in UTF-8; SQLite would accept
both and return something else. So all of them are refused here, before a store gets them.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any, NamedTuple

from leasehold.domain.errors import NO_RESULTS_FOLDER, InvalidInput, NotSerializable

LARGEST = 1024 * 1024
LARGEST_IN_PIECES = 16 * LARGEST
LARGEST_FILE = 256 * LARGEST
DEEPEST = 64


class Limit(NamedTuple):
    """The most bytes of JSON, and what to do with a larger value."""

    bytes: int
    remedy: str


IN_ROW = Limit(LARGEST, "store it elsewhere and pass a reference")
RESULT_IN_DATABASE = Limit(
    LARGEST_IN_PIECES, f"{NO_RESULTS_FOLDER}; larger results go there by themselves. Or return a reference"
)
RESULT_IN_FILE = Limit(LARGEST_FILE, "store it elsewhere and return a reference")

_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def encode(value: Any, field: str, limit: Limit = IN_ROW) -> str:
    """Encode a value as compact JSON. The common case costs one dump; only a failure searches for the faulty part."""
    try:
        text = _ENCODER.encode(value)
        size = len(text.encode("utf-8"))
        suspicious = "\\u0000" in text
    except (ValueError, TypeError, RecursionError) as error:
        _find_culprit(value, field, 0)
        raise NotSerializable(field, f"cannot be kept as JSON ({error})", "use plain JSON values") from error
    if suspicious or text.count("[") + text.count("{") > DEEPEST:
        _find_culprit(value, field, 0)
    if size > limit.bytes:
        raise NotSerializable(
            _largest_part(value, field),
            f"too large: {size:,} bytes of JSON in all, the limit is {limit.bytes:,}",
            limit.remedy,
        )
    return text


def is_surely_storable(text: str) -> bool:
    """Return whether JSON that was made elsewhere needs no closer check: it is small, flat and has no NUL."""
    return (
        len(text) <= LARGEST // 4 and "\\u0000" not in text and text.count("[") + text.count("{") <= DEEPEST
    )


def fits_row(text: str) -> bool:
    """Return whether this JSON fits into a row."""
    return len(text) <= LARGEST // 4 or len(text.encode("utf-8")) <= LARGEST


def fits_database(text: str) -> bool:
    """Return whether this JSON may be stored in the database, in pieces."""
    return len(text) <= LARGEST_IN_PIECES // 4 or len(text.encode("utf-8")) <= LARGEST_IN_PIECES


def check_text(text: str, field: str) -> str:
    """Return a name or a message that every store can keep, or raise."""
    if "\x00" in text:
        raise NotSerializable(field, "contains a NUL character", "remove it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotSerializable(field, "contains a lone surrogate", "pass valid Unicode text") from None
    return text


def _largest_part(value: Any, field: str) -> str:
    if not isinstance(value, dict) or not value:
        return field
    return f"{field}.{max(value, key=lambda key: len(json.dumps(value[key], default=str)))}"


def _find_culprit(value: Any, field: str, depth: int) -> None:
    if depth > DEEPEST:
        raise NotSerializable(field, f"is nested more than {DEEPEST} levels deep", "flatten it")
    match value:
        case str():
            check_text(value, field)
        case bool() | int() | None:
            pass
        case float():
            if not math.isfinite(value):
                raise NotSerializable(
                    field, f"is {value}, which JSON cannot express", "use None or a finite number"
                )
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise NotSerializable(field, f"has the key {key!r}, which is not text", "use text keys")
                check_text(key, field)
                _find_culprit(item, f"{field}.{key}", depth + 1)
        case list() | tuple():
            for index, item in enumerate(value):
                _find_culprit(item, f"{field}[{index}]", depth + 1)
        case _:
            raise NotSerializable(
                field, f"is a {type(value).__name__}, which JSON cannot express", "use plain JSON values"
            )


# -- cursors -----------------------------------------------------------------------------------------------------------

LONGEST_CURSOR = 4000
LARGEST_NUMBER = 2**63 - 1


def cursor_of(*parts: str | int) -> str:
    """Encode the key of the last row of a page."""
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parts_of(cursor: str, *tasks: type[str] | type[int]) -> tuple[str | int, ...]:
    """Decode a cursor, and check the types of its parts. Raises InvalidInput."""
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
        # A caller may have invented the cursor: every store must be able to compare with its parts.
        if isinstance(part, str):
            check_text(part, "cursor")
        elif not 0 <= part <= LARGEST_NUMBER:
            raise InvalidInput("cursor", "is out of range", "give `next` of the previous page")
    return tuple(parts)
