"""JSON Schema validator for the answers of questions, as far as ordinary types need it.

An answer may come from a process that does not know the question's Python type, so the answer is checked against the
schema itself. An unknown keyword is refused with the question: no answer is checked in part only.
One table at the end holds both checks of each keyword (is the schema valid? does a value fit?), so the file is long:
in separate files, one check could be forgotten.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any

from leasehold.domain.errors import InvalidInput

DEEPEST = 64
"""Deepest nesting of schemas, and longest chain of references."""

Schema = Mapping[str, Any] | bool
Problem = tuple[str, str]
"""The path in the value, and what is wrong there."""

_SILENT = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "discriminator",  # which of `oneOf` is meant; `oneOf` itself decides
    }
)
"""Keywords that cannot make an answer invalid."""

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def check_schema(schema: object) -> Mapping[str, Any]:
    """Return the schema, or raise an error that names the keyword."""
    if not isinstance(schema, Mapping):
        raise _refused("$", f"is {schema!r}", "give a type, or a JSON schema as a dict")
    _check(schema, schema, "$", 0)
    return schema


def first_problem(value: Any, schema: Mapping[str, Any]) -> Problem | None:
    """Return the first problem of a plain JSON value, or None."""
    return next(_problems(value, schema, schema, "$", 0), None)


# -- the schema itself -------------------------------------------------------------------------------------------------
def _check(schema: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _refused(path, f"is {schema!r}", "a schema is a dict, or true or false")
    if depth > DEEPEST:
        raise _refused(path, f"is nested more than {DEEPEST} levels deep", "flatten it")
    for keyword, wanted in schema.items():
        if keyword in ("$defs", "definitions"):
            for name, inner in _mapping(wanted, f"{path}.{keyword}").items():
                _check(inner, root, f"{path}.{keyword}.{name}", depth + 1)
        elif keyword not in _SILENT:
            if keyword not in _KEYWORDS:
                raise _refused(
                    path,
                    f"has the keyword {keyword!r}, which is not known",
                    f"known: {', '.join(sorted(_KEYWORDS))}",
                )
            _KEYWORDS[keyword][0](wanted, root, f"{path}.{keyword}", depth + 1)


def _mapping(wanted: object, path: str) -> Mapping[str, Any]:
    if not isinstance(wanted, Mapping):
        raise _refused(path, f"is {wanted!r}", "give a dict")
    return wanted


def _list(wanted: object, path: str) -> Sequence[Any]:
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        raise _refused(path, f"is {wanted!r}", "give a list")
    return wanted


def _takes_schema(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    _check(wanted, root, path, depth)


def _takes_schemas(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    for number, inner in enumerate(_list(wanted, path)):
        _check(inner, root, f"{path}[{number}]", depth)


def _takes_named(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    for name, inner in _mapping(wanted, path).items():
        _check(inner, root, f"{path}.{name}", depth)


def _takes_named_by_pattern(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    for pattern in _mapping(wanted, path):
        _takes_pattern(pattern, root, path, depth)
    _takes_named(wanted, root, path, depth)


def _takes_type(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    for name in [wanted] if isinstance(wanted, str) else _list(wanted, path):
        if name not in _TYPES:
            raise _refused(path, f"is {name!r}", f"known: {', '.join(_TYPES)}")


def _takes_list(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    _list(wanted, path)


def _takes_anything(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    """`const` accepts any value."""


def _takes_number(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    if not _is_number(wanted):
        raise _refused(path, f"is {wanted!r}", "give a number")


def _takes_divisor(wanted: Any, root: Mapping[str, Any], path: str, depth: int) -> None:
    _takes_number(wanted, root, path, depth)
    if wanted <= 0:
        raise _refused(path, f"is {wanted!r}", "give a number above 0")


def _takes_flag(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    if not isinstance(wanted, bool):
        raise _refused(path, f"is {wanted!r}", "give true or false")


def _takes_pattern(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    try:
        re.compile(wanted if isinstance(wanted, str) else "(")
    except re.error as error:
        raise _refused(path, f"is {wanted!r} ({error})", "give a regular expression") from None


def _takes_reference(wanted: object, root: Mapping[str, Any], path: str, depth: int) -> None:
    """Refuse a cycle made of references only: it never reaches a schema that checks anything."""
    target: object = {"$ref": wanted}
    for _ in range(DEEPEST):
        if not isinstance(target, Mapping) or "$ref" not in target:
            return
        target = _target(target["$ref"], root, path)
    raise _refused(path, f"{wanted!r} leads in a circle", "let it lead to a schema")


def _target(reference: object, root: Mapping[str, Any], path: str) -> Any:
    found: Any = root
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise _refused(path, f"is {reference!r}", "refer to #/$defs/…")
    for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            raise _refused(path, f"{reference!r} leads nowhere", "name what stands in $defs")
        found = found[name]
    return found


def _refused(path: str, problem: str, remedy: str) -> InvalidInput:
    return InvalidInput("schema", f"{path} {problem}", remedy)


# -- a value -----------------------------------------------------------------------------------------------------------
def _problems(
    value: Any, schema: Schema, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(schema, bool):
        if not schema:
            yield path, "is not expected"
        return
    if depth > 4 * DEEPEST:
        yield path, "is nested too deep"
        return
    for keyword, wanted in schema.items():
        if keyword in _KEYWORDS:
            yield from _KEYWORDS[keyword][1](value, wanted, schema, root, path, depth + 1)


def _fits(value: Any, schema: Schema, root: Mapping[str, Any], path: str, depth: int) -> bool:
    return next(_problems(value, schema, root, path, depth), None) is None


def _type(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(_TYPES[name](value) for name in names):
        yield path, f"is not of type {' or '.join(names)}"


def _enum(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if not any(_same(value, one) for one in wanted):
        yield path, f"is not one of {', '.join(map(repr, wanted))}"


def _const(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if not _same(value, wanted):
        yield path, f"is not {wanted!r}"


def _properties(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name, inner in wanted.items():
            if name in value:
                yield from _problems(value[name], inner, root, f"{path}.{name}", depth)


def _pattern_properties(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name, item in value.items():
            for pattern, inner in wanted.items():
                if re.search(pattern, name):
                    yield from _problems(item, inner, root, f"{path}.{name}", depth)


def _additional_properties(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, dict):
        patterns = schema.get("patternProperties", {})
        for name, item in value.items():
            if name not in schema.get("properties", {}) and not any(re.search(p, name) for p in patterns):
                yield from _problems(item, wanted, root, f"{path}.{name}", depth)


def _property_names(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name in value:
            for _, problem in _problems(name, wanted, root, path, depth):
                yield path, f"has the key {name!r}, which {problem}"


def _required(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name in wanted:
            if name not in value:
                yield f"{path}.{name}", "is missing"


def _prefix_items(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, list):
        for number, (item, inner) in enumerate(zip(value, wanted, strict=False)):
            yield from _problems(item, inner, root, f"{path}[{number}]", depth)


def _items(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, list):
        first = len(schema.get("prefixItems", ()))
        for number, item in enumerate(value[first:], first):
            yield from _problems(item, wanted, root, f"{path}[{number}]", depth)


def _unique_items(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if wanted and isinstance(value, list):
        for number, item in enumerate(value):
            if any(_same(item, other) for other in value[:number]):
                yield f"{path}[{number}]", "stands there twice"


def _any_of(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if not any(_fits(value, inner, root, path, depth) for inner in wanted):
        yield _nearest(value, wanted, root, path, depth)


def _one_of(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    fitting = sum(_fits(value, inner, root, path, depth) for inner in wanted)
    if fitting == 0:
        yield _nearest(value, wanted, root, path, depth)
    elif fitting > 1:
        yield path, f"fits {fitting} of the alternatives, and only one is meant"


def _nearest(value: Any, wanted: Any, root: Mapping[str, Any], path: str, depth: int) -> Problem:
    """Of several alternatives that do not fit, report the one whose first problem lies deepest: it was likely meant."""
    found = [next(_problems(value, inner, root, path, depth)) for inner in wanted]
    deepest = max(found, key=lambda problem: len(problem[0]), default=(path, "fits none of the alternatives"))
    return deepest if len(found) == 1 or deepest[0] != path else (path, "fits none of the alternatives")


def _all_of(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    for inner in wanted:
        yield from _problems(value, inner, root, path, depth)


def _not(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if _fits(value, wanted, root, path, depth):
        yield path, "is what it must not be"


def _reference(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    yield from _problems(value, _target(wanted, root, path), root, path, depth)


def _pattern(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if isinstance(value, str) and not re.search(wanted, value):
        yield path, f"does not match {wanted!r}"


def _multiple_of(
    value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[Problem]:
    if _is_number(value):
        whole = isinstance(value, int) and isinstance(wanted, int)
        times = value / wanted
        if (value % wanted) if whole else not math.isclose(times, round(times), abs_tol=1e-9):
            yield path, f"is not a multiple of {wanted}"


def _bound(told: str, breaks: Callable[[Any, Any], bool]) -> Callable[..., Iterator[Problem]]:
    def check(
        value: Any, wanted: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[Problem]:
        if breaks(value, wanted):
            yield path, f"{told} {wanted}"

    return check


def _shorter(kind: type[Sized]) -> Callable[[Any, Any], bool]:
    return lambda value, wanted: isinstance(value, kind) and len(value) < wanted


def _longer(kind: type[Sized]) -> Callable[[Any, Any], bool]:
    return lambda value, wanted: isinstance(value, kind) and len(value) > wanted


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Compare two JSON values. In JSON true is not 1, although Python says so."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)


_KEYWORDS: dict[str, tuple[Callable[..., None], Callable[..., Iterator[Problem]]]] = {
    "type": (_takes_type, _type),
    "enum": (_takes_list, _enum),
    "const": (_takes_anything, _const),
    "$ref": (_takes_reference, _reference),
    "properties": (_takes_named, _properties),
    "patternProperties": (_takes_named_by_pattern, _pattern_properties),
    "additionalProperties": (_takes_schema, _additional_properties),
    "propertyNames": (_takes_schema, _property_names),
    "required": (_takes_list, _required),
    "prefixItems": (_takes_schemas, _prefix_items),
    "items": (_takes_schema, _items),
    "uniqueItems": (_takes_flag, _unique_items),
    "anyOf": (_takes_schemas, _any_of),
    "oneOf": (_takes_schemas, _one_of),
    "allOf": (_takes_schemas, _all_of),
    "not": (_takes_schema, _not),
    "pattern": (_takes_pattern, _pattern),
    "multipleOf": (_takes_divisor, _multiple_of),
    "minimum": (_takes_number, _bound("is less than", lambda v, w: _is_number(v) and v < w)),
    "maximum": (_takes_number, _bound("is more than", lambda v, w: _is_number(v) and v > w)),
    "exclusiveMinimum": (_takes_number, _bound("is not more than", lambda v, w: _is_number(v) and v <= w)),
    "exclusiveMaximum": (_takes_number, _bound("is not less than", lambda v, w: _is_number(v) and v >= w)),
    "minLength": (_takes_number, _bound("is shorter than", _shorter(str))),
    "maxLength": (_takes_number, _bound("is longer than", _longer(str))),
    "minItems": (_takes_number, _bound("has fewer items than", _shorter(list))),
    "maxItems": (_takes_number, _bound("has more items than", _longer(list))),
    "minProperties": (_takes_number, _bound("has fewer keys than", _shorter(dict))),
    "maxProperties": (_takes_number, _bound("has more keys than", _longer(dict))),
}
"""For each keyword: the check of the schema, and the check of a value."""
