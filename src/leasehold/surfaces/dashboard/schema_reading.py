"""What a JSON schema says to somebody who draws a form: its references followed, its choices by name. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST_CHOICES = 200
MOST_STEPS = 20
"""References one behind the other."""

Drawn = Mapping[str, Any]
"""A schema, or the root that its references lead into."""


def resolved(schema: Any, root: Drawn) -> Drawn | None:
    """With its references followed. What stands beside a reference counts. None: it says nothing of use."""
    for _ in range(MOST_STEPS):
        if not isinstance(schema, dict):
            return None
        parts = schema.get("allOf")
        if "$ref" in schema:
            schema = {**(_target(schema["$ref"], root) or {}), **_rest(schema, "$ref")}
        elif isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict):
            schema = {**parts[0], **_rest(schema, "allOf")}
        else:
            return schema
    return None


def _rest(schema: Drawn, key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def _target(reference: Any, root: Drawn) -> dict[str, Any] | None:
    found: Any = root
    for part in str(reference).removeprefix("#").strip("/").split("/"):
        if part:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def without_null(schema: Drawn, root: Drawn) -> tuple[Drawn, bool]:
    """`str | None` is a text that may be left empty."""
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds and len(kinds) == 2:
        (other,) = (one for one in kinds if one != "null")
        return {**schema, "type": other}, True
    if isinstance(kinds, list) and len(kinds) == 1:
        return {**schema, "type": kinds[0]}, False
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if isinstance(parts, list) and len(parts) == 2 and {"type": "null"} in parts:
            other = resolved(parts[1 - parts.index({"type": "null"})], root)
            if other is not None:
                return {**other, **_rest(schema, key)}, True
    return schema, False


def options_of(schema: Drawn, root: Drawn) -> list[tuple[str, Any]] | None:
    """What there is to choose from, each with what it is called."""
    named: list[tuple[str, Any]] = []
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        named = [(_called(one), one) for one in schema["enum"]]
    elif "const" in schema:
        named = [(_called(schema["const"]), schema["const"])]
    else:
        parts = schema.get("oneOf") or schema.get("anyOf")
        found = [resolved(one, root) for one in parts] if isinstance(parts, list) else []
        for one in found:
            if one is None or "const" not in one:
                return None
            named.append((str(one.get("title") or _called(one["const"])), one["const"]))
    return named if 0 < len(named) <= MOST_CHOICES else None


def _called(value: Any) -> str:
    if isinstance(value, str):
        return value or "(empty)"
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def same(one: Any, other: Any) -> bool:
    """True is not 1 in JSON, though Python says so."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
