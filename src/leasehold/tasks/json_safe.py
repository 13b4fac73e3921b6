"""Checks that a value is read back from the store as it was written.

Most annotations lose nothing in JSON, and this is known when a task is registered: their values need no check. The
others (models, whose subclasses have more fields; secrets; aliases; custom validators; no annotation) are encoded,
decoded and compared at the call, while the caller can still get an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from leasehold.domain.errors import NotSerializable

REMEDY = (
    "pass what JSON carries as it is: no secrets, no excluded or computed fields, no alias of one direction, "
    "no subclass of the annotated class, no keys but text"
)

_SCALARS = frozenset({"none", "bool", "int", "float", "str", "date", "datetime", "decimal", "uuid"})
_KEYS = frozenset({"str", "int", "date", "uuid"})
_APART = frozenset({"none", "bool", "int", "float", "str"})
"""Types that JSON keeps apart, so that a union of them decodes to the right one."""
_PLAIN = frozenset({str, int, bool, type(None)})

Schema = Mapping[str, Any]
"""A schema of pydantic's core, which an annotation is compiled to."""


def is_json_safe(schema: Schema) -> bool:
    """Return whether values of this schema always decode to the same value. Others are compared at every call."""
    kind = schema["type"]
    if "serialization" in schema:
        return False
    if kind in _SCALARS:
        return True
    match kind:
        case "nullable" | "default" | "definitions":
            return is_json_safe(schema["schema"])
        case "enum":
            return all(type(member.value) in _PLAIN for member in schema["members"])
        case "literal":
            return all(type(value) in _PLAIN for value in schema["expected"])
        case "list" | "set" | "frozenset":
            return is_json_safe(schema.get("items_schema", _ANY))
        case "tuple":
            return all(map(is_json_safe, schema["items_schema"]))
        case "dict":
            keys, values = schema.get("keys_schema", _ANY), schema.get("values_schema", _ANY)
            return keys["type"] in _KEYS and is_json_safe(keys) and is_json_safe(values)
        case "union":
            choices = [one[0] if isinstance(one, tuple) else one for one in schema["choices"]]
            return all(one["type"] in _APART and is_json_safe(one) for one in choices)
        case "typed-dict":
            return _has_only_its_fields(schema) and all(map(field_comes_back, schema["fields"].values()))
        case _:
            return False


def field_comes_back(field: Schema) -> bool:
    """Return whether a field of a typed dict has one name in both directions, and is stored at all."""
    read, written = field.get("validation_alias"), field.get("serialization_alias")
    one_name = read == written and (read is None or isinstance(read, str))
    return one_name and not field.get("serialization_exclude") and is_json_safe(field["schema"])


def _has_only_its_fields(schema: Schema) -> bool:
    return not schema.get("computed_fields") and schema.get("extra_behavior") != "allow"


_ANY: Schema = {"type": "any"}


def difference(before: Any, after: Any, field: str) -> str | None:
    """Return the name of the first part that did not come back as it was."""
    if before is after or isinstance(before, Iterator):
        return None  # storing used the iterator up: there is nothing to compare
    if isinstance(before, Mapping):
        if not isinstance(after, Mapping) or before.keys() != after.keys():
            return field
        return _first((value, after[name], f"{field}.{name}") for name, value in before.items())
    if isinstance(before, list | tuple):
        # Without an annotation a tuple comes back as a list: JSON has only lists.
        if not isinstance(after, list | tuple) or len(before) != len(after):
            return field
        pairs = enumerate(zip(before, after, strict=True))
        return _first((one, other, f"{field}[{index}]") for index, (one, other) in pairs)
    parts = _parts(before)
    if parts is not None:
        others = _parts(after) if type(after) is type(before) else None
        return field if others is None else difference(parts, others, field)
    return None if _equal(before, after) else field


def _first(pairs: Iterator[tuple[Any, Any, str]]) -> str | None:
    return next((found for one, other, name in pairs if (found := difference(one, other, name))), None)


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, a model, or another object without an equality method."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    if hasattr(type(value), "model_fields"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    if "__eq__" not in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}:
        return dict(getattr(value, "__dict__", {}))
    return None


def _equal(before: Any, after: Any) -> bool:
    try:
        return bool(before == after)
    except Exception:
        return True  # trust a type that cannot be compared


def unreadable(error: ValidationError, field: str) -> NotSerializable:
    """Build the error for a value that could be stored but not read again."""
    first = error.errors(include_input=False, include_url=False)[0]
    name = ".".join([field, *map(str, first["loc"])])
    return NotSerializable(name, f"could not be read again ({first['msg']})", REMEDY)


def changed(field: str) -> NotSerializable:
    return NotSerializable(field, "would not come back as it is", REMEDY)
