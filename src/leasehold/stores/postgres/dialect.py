"""Statements and values as PostgreSQL reads them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from leasehold.stores.database.statements import PARAMETER


def in_dialect(text: str, schema: str, own_clock: bool) -> str:
    def placeholder(match: re.Match[str]) -> str:
        name, column = match.groups(default="")
        if name == "now":
            return "statement_timestamp()" if own_clock else "%(now)s::timestamptz"
        return f"%({name}{column})s"

    return qualified(PARAMETER.sub(placeholder, text.replace("%", "%%")), schema)


def qualified(text: str, schema: str) -> str:
    text = re.sub(r"SCHEMA IF (NOT )?EXISTS leasehold\b", rf'SCHEMA IF \1EXISTS "{schema}"', text)
    return re.sub(r"\bleasehold\.", f'"{schema}".', text)


def as_array(items: Sequence[Any]) -> str:
    """An array as PostgreSQL reads it. The driver's own way visits every item in Python, at several times the cost."""
    kinds = set(map(type, items))
    texts: Iterable[str]
    if kinds <= _BARE:
        texts = map(str, items)
    elif kinds == {type(None)}:
        texts = itertools.repeat("NULL", len(items))
    else:
        texts = map(_item, items)
    return "{" + ",".join(texts) + "}"


_BARE = frozenset({int, float})


def _item(item: Any) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, str):
        if "\\" in item or '"' in item:
            item = item.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{item}"'
    return str(item)


def jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"cannot send {type(value).__name__} to the database")
