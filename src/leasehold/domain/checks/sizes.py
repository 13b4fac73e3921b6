"""Sizes of memory: a number of bytes, or text such as "512MB" and "2g"."""

from __future__ import annotations

import re

from leasehold.domain.errors import InvalidInput

Size = int | str

_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?")
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
LARGEST = 2**62


def size(value: Size, field: str, least: int = 1) -> int:
    """Return the size in bytes. A kilobyte has 1,024 bytes, as for Docker and the kernel."""
    found = _parse(value)
    if found is None:
        raise InvalidInput(field, f"{value!r} is not a size", 'use bytes, or text such as "512MB" or "2GB"')
    if not least <= found <= LARGEST:
        raise InvalidInput(field, f"{value!r} is out of range", f"give {size_text(least)} or more")
    return found


def size_text(value: int) -> str:
    """Format a size as the shortest text that means the same: "512MB", "1GB"."""
    for unit in ("t", "g", "m", "k"):
        if value and value % _BYTES[unit] == 0:
            return f"{value // _BYTES[unit]}{unit.upper()}B"
    return f"{value}B"


def _parse(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    found = _TEXT.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    return None if found is None else int(float(found[1]) * _BYTES[found[2]])
