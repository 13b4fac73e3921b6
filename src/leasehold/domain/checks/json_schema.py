"""Checks schemas of questions and answers to them: JSON Schema (2020-12), as far as ordinary types need it.

An answer may come from a process that does not have the question's Python type, so the schema itself is
checked. A schema with an unknown keyword is refused when the question is asked, so that no answer is checked
in part only. One table, at the end, pairs the two checks of each keyword (is the schema valid? does a value
fit it?). tests/domain/test_json_schema_oracle.py compares the verdicts with those of the `jsonschema`
package, which costs five packages, one of them compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from fractions import Fraction
from itertools import chain
from typing import Any
from urllib.parse import unquote

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen

DEEPEST = 64
"""Deepest nesting of schemas, and longest chain of references."""

Schema = Mapping[str, Any] | bool
Problem = tuple[str, str]
"""The path in the value, and what is wrong there."""

_SILENT = frozenset({
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "deprecated",
    "readOnly", "writeOnly", "format", "discriminator",  # the last names the part of `oneOf` that is meant
})  # fmt: skip
"""Keywords that restrict no answer."""

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

_HOLD_ONE = frozenset({"additionalProperties", "propertyNames", "items", "not"})
_HOLD_NAMED = frozenset({"$defs", "definitions", "properties", "patternProperties"})
_HOLD_LISTED = frozenset({"prefixItems", "anyOf", "oneOf", "allOf"})
"""Keywords by how they hold schemas: a reference may lead only through these, to a schema that was checked."""


@frozen
class _Position:
    root: Mapping[str, Any]
    """Where references start."""
    path: str = "$"
    depth: int = 0

    def below(self, step: str, levels: int = 0) -> _Position:
        return _Position(self.root, self.path + step, self.depth + levels)


def check_schema(schema: object) -> Mapping[str, Any]:
    """Return the schema, or raise an error that names the keyword."""
    if not isinstance(schema, Mapping):
        raise InvalidInput("schema", f"$ is {schema!r}", "give a type, or a JSON schema as a dict")
    _check(schema, _Position(schema))
    return schema


def first_problem(value: Any, schema: Mapping[str, Any]) -> Problem | None:
    """Return the first problem of a plain JSON value. None: the value fits the schema."""
    return next(_problems(value, schema, _Position(schema)), None)


# -- the schema itself -------------------------------------------------------------------------------------------------
def _check(schema: object, at: _Position) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _refused(at, f"is {schema!r}", "a schema is a dict, or true or false")
    if at.depth > DEEPEST:
        raise _refused(at, f"is nested more than {DEEPEST} levels deep", "flatten it")
    for keyword, wanted in schema.items():
        below = at.below(f".{keyword}", 1)
        if keyword in ("$defs", "definitions"):
            _takes_named(wanted, below)
        elif keyword in _KEYWORDS:
            _KEYWORDS[keyword][0](wanted, below)
        elif keyword not in _SILENT or (keyword == "$id" and schema is not at.root):
            problem = f"has the keyword {keyword!r}, which is not known"
            raise _refused(at, problem, f"known: {', '.join(sorted(_KEYWORDS))}")


def _mapping(wanted: object, at: _Position) -> Mapping[str, Any]:
    if not isinstance(wanted, Mapping):
        raise _refused(at, f"is {wanted!r}", "give a dict")
    return wanted


def _list(wanted: object, at: _Position) -> Sequence[Any]:
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        raise _refused(at, f"is {wanted!r}", "give a list")
    return wanted


def _takes_schemas(wanted: object, at: _Position) -> None:
    if not _list(wanted, at):
        raise _refused(at, "is empty", "give at least one schema")
    for number, inner in enumerate(_list(wanted, at)):
        _check(inner, at.below(f"[{number}]"))


def _takes_named(wanted: object, at: _Position) -> None:
    for name, inner in _mapping(wanted, at).items():
        _check(inner, at.below(f".{name}"))


def _takes_named_by_pattern(wanted: object, at: _Position) -> None:
    for pattern in _mapping(wanted, at):
        _takes_pattern(pattern, at)
    _takes_named(wanted, at)


def _takes_type(wanted: object, at: _Position) -> None:
    names = [wanted] if isinstance(wanted, str) else _names(wanted, at)
    if not names or not set(names) <= _TYPES.keys():
        raise _refused(at, f"is {wanted!r}", f"known: {', '.join(_TYPES)}")


def _names(wanted: object, at: _Position) -> Sequence[str]:
    names = _list(wanted, at)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise _refused(at, f"is {wanted!r}", "give a list of names, each once")
    return names


def _takes_anything(wanted: object, at: _Position) -> None:
    """Accept any value, for `const`."""


def _takes_number(wanted: object, at: _Position) -> None:
    if not _is_number(wanted):
        raise _refused(at, f"is {wanted!r}", "give a number")


def _takes_divisor(wanted: Any, at: _Position) -> None:
    _takes_number(wanted, at)
    if wanted <= 0:
        raise _refused(at, f"is {wanted!r}", "give a number above 0")


def _takes_size(wanted: Any, at: _Position) -> None:
    if not _TYPES["integer"](wanted) or wanted < 0:
        raise _refused(at, f"is {wanted!r}", "give a whole number, 0 or more")


def _takes_flag(wanted: object, at: _Position) -> None:
    if not isinstance(wanted, bool):
        raise _refused(at, f"is {wanted!r}", "give true or false")


def _takes_pattern(wanted: object, at: _Position) -> None:
    try:
        re.compile(wanted if isinstance(wanted, str) else "(")
    except re.error as error:
        raise _refused(at, f"is {wanted!r} ({error})", "give a regular expression") from None


def _takes_reference(wanted: object, at: _Position) -> None:
    """Refuse references that only lead to each other: they never reach a schema that checks anything."""
    target: object = {"$ref": wanted}
    for _ in range(DEEPEST):
        if not isinstance(target, Mapping) or "$ref" not in target:
            return
        target = _target(target["$ref"], at)
    raise _refused(at, f"{wanted!r} leads in a circle", "let it lead to a schema")


def _target(reference: object, at: _Position) -> Any:
    if not isinstance(reference, str) or not re.match("#(/|$)", reference):
        raise _refused(at, f"is {reference!r}", "refer to #/$defs/…")
    parts = iter(unquote(part).replace("~1", "/").replace("~0", "~") for part in reference.split("/")[1:])
    found: Any = at.root
    try:
        for keyword in parts:
            if keyword in _HOLD_NAMED:
                found = found[keyword][next(parts)]
            elif keyword in _HOLD_LISTED:
                found = found[keyword][int(next(parts))]
            else:
                found = found[keyword] if keyword in _HOLD_ONE else None
    except (LookupError, TypeError, ValueError, StopIteration):
        found = None
    if not isinstance(found, Mapping | bool):
        raise _refused(at, f"{reference!r} leads nowhere", "name what stands in $defs")
    return found


def _refused(at: _Position, problem: str, remedy: str) -> InvalidInput:
    return InvalidInput("schema", f"{at.path} {problem}", remedy)


# -- a value -----------------------------------------------------------------------------------------------------------
def _problems(value: Any, schema: Schema, at: _Position) -> Iterator[Problem]:
    if isinstance(schema, bool):
        if not schema:
            yield at.path, "is not expected"
        return
    if at.depth > 4 * DEEPEST:
        yield at.path, "is nested too deep"
        return
    deeper = at.below("", 1)
    for keyword, wanted in schema.items():
        if keyword in _KEYWORDS:
            yield from _KEYWORDS[keyword][1](value, wanted, schema, deeper)


def _fits(value: Any, schema: Schema, at: _Position) -> bool:
    return next(_problems(value, schema, at), None) is None


def _type(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(_TYPES[name](value) for name in names):
        yield at.path, f"is not of type {' or '.join(names)}"


def _enum(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if not any(_same(value, one) for one in wanted):
        yield at.path, f"is not one of {', '.join(map(repr, wanted))}"


def _properties(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name, inner in wanted.items():
            if name in value:
                yield from _problems(value[name], inner, at.below(f".{name}"))


def _pattern_properties(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name, item in value.items():
            for pattern, inner in wanted.items():
                if re.search(pattern, name):
                    yield from _problems(item, inner, at.below(f".{name}"))


def _additional_properties(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if isinstance(value, dict):
        patterns = schema.get("patternProperties", {})
        for name, item in value.items():
            if name not in schema.get("properties", {}) and not any(re.search(p, name) for p in patterns):
                yield from _problems(item, wanted, at.below(f".{name}"))


def _property_names(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name in value:
            for _, problem in _problems(name, wanted, at):
                yield at.path, f"has the key {name!r}, which {problem}"


def _required(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name in wanted:
            if name not in value:
                yield f"{at.path}.{name}", "is missing"


def _prefix_items(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if isinstance(value, list):
        for number, (item, inner) in enumerate(zip(value, wanted, strict=False)):
            yield from _problems(item, inner, at.below(f"[{number}]"))


def _items(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if isinstance(value, list):
        first = len(schema.get("prefixItems", ()))
        for number, item in enumerate(value[first:], first):
            yield from _problems(item, wanted, at.below(f"[{number}]"))


def _unique_items(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if wanted and isinstance(value, list):
        for number, item in enumerate(value):
            if any(_same(item, other) for other in value[:number]):
                yield f"{at.path}[{number}]", "stands there twice"


def _any_of(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if not any(_fits(value, inner, at) for inner in wanted):
        yield _nearest(value, wanted, at)


def _one_of(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    fitting = sum(_fits(value, inner, at) for inner in wanted)
    if fitting == 0:
        yield _nearest(value, wanted, at)
    elif fitting > 1:
        yield at.path, f"fits {fitting} of the alternatives, and only one is meant"


def _nearest(value: Any, wanted: Any, at: _Position) -> Problem:
    """Return the problem of the alternative that was probably meant: its first problem lies deepest."""
    found = [next(_problems(value, inner, at)) for inner in wanted]
    deepest = max(found, key=lambda problem: len(problem[0]))
    return deepest if len(found) == 1 or deepest[0] != at.path else (at.path, "fits none of the alternatives")


def _not(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
    if _fits(value, wanted, at):
        yield at.path, "is what it must not be"


def _written(number: float) -> Fraction:
    """Return the number as JSON writes it: 0.1 is exactly one tenth, and 0.3 is a multiple of it."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _rule(
    wording: str, breaks: Callable[[Any, Any], bool], shown: Callable[[Any], str] = str
) -> Callable[..., Iterator[Problem]]:
    def check(value: Any, wanted: Any, schema: Any, at: _Position) -> Iterator[Problem]:
        if breaks(value, wanted):
            yield at.path, f"{wording} {shown(wanted)}"

    return check


def _shorter(kind: type[Sized]) -> Callable[[Any, Any], bool]:
    return lambda value, wanted: isinstance(value, kind) and len(value) < wanted


def _longer(kind: type[Sized]) -> Callable[[Any, Any], bool]:
    return lambda value, wanted: isinstance(value, kind) and len(value) > wanted


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Compare two JSON values. In JSON, true is not equal to 1; in Python it is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)


_KEYWORDS: dict[str, tuple[Callable[..., object], Callable[..., Iterator[Problem]]]] = {
    "type": (_takes_type, _type),
    "enum": (_list, _enum),
    "const": (_takes_anything, _rule("is not", lambda v, w: not _same(v, w), repr)),
    "$ref": (_takes_reference, lambda v, w, _, at: _problems(v, _target(w, at), at)),
    "properties": (_takes_named, _properties),
    "patternProperties": (_takes_named_by_pattern, _pattern_properties),
    "additionalProperties": (_check, _additional_properties),
    "propertyNames": (_check, _property_names),
    "required": (_names, _required),
    "prefixItems": (_takes_schemas, _prefix_items),
    "items": (_check, _items),
    "uniqueItems": (_takes_flag, _unique_items),
    "anyOf": (_takes_schemas, _any_of),
    "oneOf": (_takes_schemas, _one_of),
    "allOf": (_takes_schemas, lambda v, w, _, at: chain.from_iterable(_problems(v, one, at) for one in w)),
    "not": (_check, _not),
    "pattern": (
        _takes_pattern,
        _rule("does not match", lambda v, w: isinstance(v, str) and not re.search(w, v), repr),
    ),
    "multipleOf": (
        _takes_divisor,
        _rule("is not a multiple of", lambda v, w: _is_number(v) and _written(v) % _written(w) != 0),
    ),
    "minimum": (_takes_number, _rule("is less than", lambda v, w: _is_number(v) and v < w)),
    "maximum": (_takes_number, _rule("is more than", lambda v, w: _is_number(v) and v > w)),
    "exclusiveMinimum": (_takes_number, _rule("is not more than", lambda v, w: _is_number(v) and v <= w)),
    "exclusiveMaximum": (_takes_number, _rule("is not less than", lambda v, w: _is_number(v) and v >= w)),
    "minLength": (_takes_size, _rule("is shorter than", _shorter(str))),
    "maxLength": (_takes_size, _rule("is longer than", _longer(str))),
    "minItems": (_takes_size, _rule("has fewer items than", _shorter(list))),
    "maxItems": (_takes_size, _rule("has more items than", _longer(list))),
    "minProperties": (_takes_size, _rule("has fewer keys than", _shorter(dict))),
    "maxProperties": (_takes_size, _rule("has more keys than", _longer(dict))),
}
"""For each keyword: the check of the schema, and the check of a value."""
