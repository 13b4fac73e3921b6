"""Checks numbers: priorities, page lengths, floats that JSON cannot express, and sizes of memory."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from leasehold.domain.errors import InvalidInput, NotSerializable
from leasehold.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY

Priority = int | Literal["high", "medium", "low"]


_PRIORITIES = {"high": 10, "medium": 0, "low": -10}


def priority_number(priority: Priority) -> int:
    number = _PRIORITIES.get(priority) if isinstance(priority, str) else priority
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInput(
            "priority", f"{priority!r} is not a priority", 'use −100 to 100, "high", "medium" or "low"'
        )
    if not LOWEST_PRIORITY <= number <= HIGHEST_PRIORITY:
        raise InvalidInput("priority", f"{number} is out of range", "use −100 (last) to 100 (first)")
    return number


LONGEST_PAGE = 500
"""Most rows on a page of any list."""


def check_page(limit: object, longest: int = LONGEST_PAGE) -> None:
    """Check how many rows a caller requests at once."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= longest:
        raise InvalidInput("limit", f"{limit!r} is out of range", f"ask for 1 to {longest} at once")


ALWAYS_FINITE = frozenset({str, int, bool, type(None)})
"""Types whose values `check_finite` can skip."""


def check_finite(value: Any, field: str) -> None:
    """Refuse NaN and infinities: serializers would silently turn them into null."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotSerializable(
                field, f"is {value}, which JSON cannot express", "use None or a finite number"
            )
    elif isinstance(value, Mapping):
        for name, item in value.items():
            check_finite(item, f"{field}.{name}")
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            check_finite(item, f"{field}[{index}]")
    elif _is_model(value) or dataclasses.is_dataclass(value):
        for name, item in vars(value).items() if hasattr(value, "__dict__") else ():
            check_finite(item, f"{field}.{name}")


def _is_model(value: object) -> bool:
    """Recognise a pydantic model by its fields: the domain does not import pydantic."""
    return hasattr(type(value), "model_fields")


# -- sizes -------------------------------------------------------------------------------------------------------------

Size = int | str

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?")
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
LARGEST_SIZE = 2**62


def size(value: Size, field: str, least: int = 1) -> int:
    """Return the size in bytes. A kilobyte has 1,024 bytes, as for Docker and the kernel."""
    found = _parse(value)
    if found is None:
        raise InvalidInput(field, f"{value!r} is not a size", 'use bytes, or text such as "512MB" or "2GB"')
    if not least <= found <= LARGEST_SIZE:
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
    found = _SIZE.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    return None if found is None else int(float(found[1]) * _BYTES[found[2]])
