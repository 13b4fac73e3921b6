"""Whether a value comes back from the store as it went in.

Most annotations cannot lose anything on the way through JSON, and what they are is known when a task is registered:
their values are not looked at again. The others (models, whose subclasses have more fields; secrets; aliases; own
validators; no annotation) are encoded, read again and compared at the call, while somebody is there to be told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from leasehold.domain.errors import Unstorable

REMEDY = (
    "pass what JSON carries as it is: no secrets, no excluded or computed fields, no alias of one direction, "
    "no subclass of the annotated class, no keys but text"
)

_SCALARS = frozenset({"none", "bool", "int", "float", "str", "date", "datetime", "decimal", "uuid"})
_KEYS = frozenset({"str", "int", "date", "uuid"})
_APART = frozenset({"none", "bool", "int", "float", "str"})
"""Types that JSON itself tells apart, so that a union of them finds the right one again."""
_PLAIN = frozenset({str, int, bool, type(None)})

Schema = Mapping[str, Any]
"""Of pydantic's core: what an annotation comes down to."""


def surely_comes_back(schema: Schema) -> bool:
    """What is not listed here is compared at every call."""
    kind = schema["type"]
    if "serialization" in schema:
        return False
    if kind in _SCALARS:
        return True
    match kind:
        case "nullable" | "default" | "definitions":
            return surely_comes_back(schema["schema"])
        case "enum":
            return all(type(member.value) in _PLAIN for member in schema["members"])
        case "literal":
            return all(type(value) in _PLAIN for value in schema["expected"])
        case "list" | "set" | "frozenset":
            return surely_comes_back(schema.get("items_schema", _ANY))
        case "tuple":
            return all(map(surely_comes_back, schema["items_schema"]))
        case "dict":
            keys, values = schema.get("keys_schema", _ANY), schema.get("values_schema", _ANY)
            return keys["type"] in _KEYS and surely_comes_back(keys) and surely_comes_back(values)
        case "union":
            choices = [one[0] if isinstance(one, tuple) else one for one in schema["choices"]]
            return all(one["type"] in _APART and surely_comes_back(one) for one in choices)
        case "typed-dict":
            return _has_only_its_fields(schema) and all(map(field_comes_back, schema["fields"].values()))
        case _:
            return False


def field_comes_back(field: Schema) -> bool:
    """Of a typed dict: under one name in both directions, and stored at all."""
    read, written = field.get("validation_alias"), field.get("serialization_alias")
    one_name = read == written and (read is None or isinstance(read, str))
    return one_name and not field.get("serialization_exclude") and surely_comes_back(field["schema"])


def _has_only_its_fields(schema: Schema) -> bool:
    return not schema.get("computed_fields") and schema.get("extra_behavior") != "allow"


_ANY: Schema = {"type": "any"}


def difference(before: Any, after: Any, field: str) -> str | None:
    """The first part, by its name, that did not come back as it was."""
    if before is after or isinstance(before, Iterator):
        return None  # an iterator was used up by storing it: there is nothing to compare
    if isinstance(before, Mapping):
        if not isinstance(after, Mapping) or before.keys() != after.keys():
            return field
        return _first((value, after[name], f"{field}.{name}") for name, value in before.items())
    if isinstance(before, list | tuple):
        # Without an annotation a tuple comes back as a list: JSON has no other.
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
    """Of a dataclass, a model, or whatever else does not say itself when it is equal."""
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
        return True  # a type that cannot be compared is believed


def unreadable(error: ValidationError, field: str) -> Unstorable:
    """What was stored would be refused when it is read."""
    first = error.errors(include_input=False, include_url=False)[0]
    name = ".".join([field, *map(str, first["loc"])])
    return Unstorable(name, f"could not be read again ({first['msg']})", REMEDY)


def changed(field: str) -> Unstorable:
    return Unstorable(field, "would not come back as it is", REMEDY)
