"""Puts full names into values for readers: the store keeps long names shortened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from leasehold.domain.checks.names import SHORTENED

T = TypeVar("T")

_FIELDS = ("lane", "unique_key", "tags", "name", "key", "detail", "remedy", "target")
"""Fields that may hold a name made from arguments."""


def shortened_in(value: object) -> Iterator[str]:
    for field in _FIELDS:
        for text in _texts(getattr(value, field, None)):
            if "…" in text:
                yield from SHORTENED.findall(text)


def with_full_names(value: T, full_names: Mapping[str, str]) -> T:
    changes: dict[str, Any] = {}
    for field in _FIELDS:
        found = getattr(value, field, None)
        if any("…" in text for text in _texts(found)):
            texts = [
                SHORTENED.sub(lambda match: full_names.get(match[0], match[0]), text)
                for text in _texts(found)
            ]
            changes[field] = texts[0] if isinstance(found, str) else tuple(texts)
    return replace(value, **changes) if changes else value  # type: ignore[type-var]  # a dataclass, as it has fields


def _texts(found: object) -> tuple[str, ...]:
    if isinstance(found, str):
        return (found,)
    return tuple(text for text in found if isinstance(text, str)) if isinstance(found, tuple) else ()
