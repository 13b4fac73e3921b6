"""Parameters as drivers want them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_NAMED = re.compile(r"%\(([\w.]+)\)s")


def as_dollars(text: str, bound: Mapping[str, str | None]) -> tuple[str, list[str | None]]:
    """From `%(name)s` to `$1`. Every value goes as text and is cast by the server: asyncpg would ask for each one's
    own type."""
    sql, order = _in_dollars(text)
    return sql, [bound[name] for name in order]


@lru_cache(maxsize=512)
def _in_dollars(text: str) -> tuple[str, tuple[str, ...]]:
    order: dict[str, int] = {}

    def placeholder(match: re.Match[str]) -> str:
        return f"${order.setdefault(match[1], len(order) + 1)}::text"

    return _NAMED.sub(placeholder, text).replace("%%", "%"), tuple(order)
