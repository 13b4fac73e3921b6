"""Checks numbers: priorities, page lengths, and floats that JSON cannot express."""

from __future__ import annotations

import dataclasses
import math
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
