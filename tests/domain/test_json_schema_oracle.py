"""Our check of JSON schemas decides as the `jsonschema` package does, for every keyword that it knows.

Schemas and values come from one small world of names, texts and numbers, so that many values nearly fit.

`hypothesis-jsonschema` cannot draw them. Its last version, 0.23.1, knows drafts up to 7, in which `prefixItems` and
the neighbours of a `$ref` mean nothing. And it fails on every object with the pinned Hypothesis, because it calls
`more()` of an internal class that no longer has it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator, extend

from leasehold.domain.checks.json_schema import check_schema, first_problem
from leasehold.domain.errors import InvalidInput

# Not made smaller: that would take minutes, and the schemas are small.
SOME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    max_examples=100,
)

Strategy = st.SearchStrategy[Any]

# -- schemas -----------------------------------------------------------------------------------------------------------
NAMES = st.text("ab", max_size=2)
TEXTS = st.text("ab1\nä😀", max_size=3)
NUMBERS = st.one_of(
    st.integers(-4, 12),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, -1.5, 0.1, 0.3, 0.35, 2.5, 1e-9, 1e300]),
    st.sampled_from([10**400, -(10**400), 10**20, 2**53 + 1, float(2**53)]),
)
ATOMS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
PATTERNS = st.sampled_from(["a", "^a", "b$", "^[ab]+$", "[^a]", "1|b", "^$", "^.{2}$", r"\d"])
SIZES = st.one_of(st.integers(0, 3), st.just(2.0))

PLAIN: dict[str, Strategy] = {
    "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
    "enum": st.lists(VALUES, max_size=4),
    "const": VALUES,
    "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b~1~0", "#/$defs/a/items"]),
    "required": st.lists(NAMES, max_size=2, unique=True),
    "uniqueItems": st.booleans(),
    "pattern": PATTERNS,
    "multipleOf": st.sampled_from([1, 2, 3, 7, 0.1, 0.5, 1.5, 2.0, 1e-9, 1e300, 10**400]),
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], NUMBERS),
    **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems"], SIZES),
    **dict.fromkeys(["minProperties", "maxProperties"], SIZES),
}
SILENT: dict[str, Strategy] = {
    "title": TEXTS,
    "default": ATOMS,
    "format": st.just("date"),
    "examples": st.just([1]),
}


def nesting(inner: Strategy) -> dict[str, Strategy]:
    return {
        **dict.fromkeys(["additionalProperties", "propertyNames", "items", "not"], inner),
        **dict.fromkeys(["prefixItems", "anyOf", "oneOf", "allOf"], st.lists(inner, min_size=1, max_size=3)),
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
    }


def some_of(keywords: dict[str, Strategy]) -> Strategy:
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


SCHEMAS = st.recursive(
    st.one_of(st.booleans(), some_of(PLAIN | SILENT)),
    lambda inner: some_of(PLAIN | SILENT | nesting(inner)),
    max_leaves=8,
)


@st.composite
def rooted(draw: st.DrawFn) -> dict[str, Any]:
    """With what its references may lead to."""
    schema = draw(SCHEMAS.filter(lambda found: isinstance(found, dict)))
    return plain_json({**schema, "$defs": {"a": draw(SCHEMAS), "b/~": draw(SCHEMAS)}})


def plain_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


# -- values ------------------------------------------------------------------------------------------------------------
@st.composite
def near(draw: st.DrawFn, schema: Any, depth: int = 0) -> Any:
    """A value made with a look at the schema: it fits more often than any value does."""
    if not isinstance(schema, dict) or depth > 4 or draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return draw(near(draw(st.sampled_from(schema[keyword])), depth + 1))
    if "const" in schema or schema.get("enum"):
        return draw(st.sampled_from(schema.get("enum") or [schema.get("const")]))
    of_objects = {"properties", "patternProperties", "additionalProperties", "propertyNames", "required"}
    if of_objects & schema.keys() or "object" in schema.get("type", ()):
        named, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        keys = draw(st.lists(NAMES, max_size=2)) + schema.get("required", []) + list(named)
        return {key: draw(near(named.get(key, other), depth + 1)) for key in keys if draw(st.booleans())}
    if {"items", "prefixItems", "uniqueItems", "minItems"} & schema.keys() or "array" in schema.get(
        "type", ()
    ):
        inner = [*schema.get("prefixItems", []), *[schema.get("items", True)] * draw(st.integers(0, 2))]
        return [draw(near(one, depth + 1)) for one in inner]
    by_type = {"string": TEXTS, "integer": NUMBERS, "number": NUMBERS, "boolean": st.booleans()}
    found = [strategy for name, strategy in by_type.items() if name in schema.get("type", ())]
    return draw(st.one_of(*found, NUMBERS if "multipleOf" in schema else ATOMS))


# -- the oracle --------------------------------------------------------------------------------------------------------
def exact_multiple(_: Any, divisor: Any, value: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """As numbers are written: 0.3 is a multiple of 0.1. The package divides floats, which says that it is not, and
    fails on large numbers."""
    if Draft202012Validator.TYPE_CHECKER.is_type(value, "number") and written(value) % written(divisor):
        yield jsonschema.ValidationError("is no multiple")


def written(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


Oracle: Any = extend(Draft202012Validator, {"multipleOf": exact_multiple})


def refusal_of(schema: Any) -> str:
    try:
        check_schema(schema)
    except InvalidInput as error:
        return str(error)
    return ""


def check_verdicts(data: st.DataObject) -> None:
    schema = data.draw(rooted())
    Oracle.check_schema(schema)
    refusal = refusal_of(schema)
    if refusal:
        assert re.search("leads (in a circle|nowhere)", refusal), schema
        return
    for value in data.draw(st.lists(st.one_of(VALUES, near(schema)), min_size=8, max_size=8)):
        value = plain_json(value)
        try:
            fits = Oracle(schema).is_valid(value)
        except RecursionError:  # the schema refers to itself without going deeper into the value
            continue
        assert (first_problem(value, schema) is None) is fits, (schema, value)


def compare(schemas: int, number: int) -> None:
    """Draw this many schemas, and eight values for each, from the seed `number`."""

    @seed(number)
    @settings(SOME, max_examples=schemas)
    @given(data=st.data())
    def verdicts_are_the_same(data: st.DataObject):
        check_verdicts(data)

    verdicts_are_the_same()


@pytest.mark.parametrize("number", range(4))
def test_verdicts_are_those_of_the_package(number: int):
    compare(250, number)


@pytest.mark.slow(30)
@pytest.mark.timeout(900)  # half a minute on an idle machine; a loaded one takes many times as long
def test_thousands_of_verdicts_are_those_of_the_package():
    compare(3_000, 4)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_verdicts_on_schemas_never_drawn_before_are_those_of_the_package():
    number = random.SystemRandom().getrandbits(32)
    print(f"compare(30_000, {number})", flush=True)
    compare(30_000, number)


# -- what is refused ---------------------------------------------------------------------------------------------------
@given(data=st.data())
@SOME
def test_a_schema_that_the_package_refuses_is_refused(data: st.DataObject):
    keyword = data.draw(st.sampled_from(sorted(PLAIN | nesting(VALUES))))
    schema = plain_json({keyword: data.draw(VALUES)})
    if not Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(schema):
        with pytest.raises(InvalidInput):
            check_schema(schema)


def test_every_keyword_that_is_known_is_compared():
    with pytest.raises(InvalidInput) as refused:
        check_schema({"unheard": 1})
    known = refused.value.remedy.removeprefix("known: ").split(", ")
    assert known == sorted(PLAIN | nesting(VALUES))
