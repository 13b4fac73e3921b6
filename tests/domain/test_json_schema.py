"""The schema of a question: what fits it, what does not and where, and which schemas are refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from leasehold.domain.checks.json_schema import check_schema, first_problem
from leasehold.domain.errors import InvalidInput


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = Field(pattern="^[A-Z]", max_length=8)


class Node(BaseModel):
    model_config = ConfigDict(extra="forbid")
    value: int
    children: list[Node] = []


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


TYPES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "bool": (bool, [True, False], [None, [], {"a": 1}]),
    "int": (int, [0, -5, 3.0], [1.5, "a", None, []]),
    "bounded": (Annotated[int, Field(gt=1, lt=9, multiple_of=2)], [2, 8], [1, 9, 10, 3]),
    "float": (Annotated[float, Field(ge=0.5)], [0.5, 7], [0.4, "x"]),
    "text": (Annotated[str, Field(min_length=2, max_length=3)], ["ab", "abc"], ["a", "abcd", 5]),
    "literal": (Literal["a", "b"], ["a", "b"], ["c", 1, None]),
    "enum": (Size, [1, 2], [3, "SMALL"]),
    "optional": (int | None, [None, 4], ["x", {}]),
    "list": (
        Annotated[list[int], Field(min_length=1, max_length=2)],
        [[1], [1, 2]],
        [[], [1, 2, 3], ["a"], 7],
    ),
    "set": (set[int], [[1, 2]], [["a"]]),
    "tuple": (tuple[int, str], [[1, "a"]], [[1], [1, "a", 2], ["a", 1]]),
    "dict": (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, [1]]),
    "pattern keys": (dict[Annotated[str, Field(pattern="^x")], int], [{"x1": 1}], [{"x1": "a"}]),
    "dataclass": (Point, [{"x": 1.5}, {"x": 1, "y": 2}], [{}, {"y": 1}, {"x": "a"}]),
    "union": (
        Annotated[Union[Cat, Dog], Field(discriminator="kind")],  # noqa: UP007 - a discriminator wants a Union
        [{"kind": "cat", "lives": 9}, {"kind": "dog", "name": "Rex"}],
        [{"kind": "cat", "lives": 10}, {"kind": "dog", "name": "rex"}, {"kind": "cow"}, {}],
    ),
    "recursive": (
        Node,
        [{"value": 1, "children": [{"value": 2, "children": []}]}],
        [{"value": 1, "children": [{"value": "x"}]}, {"value": 1, "more": 2}, {"children": []}],
    ),
    "date": (dt.date, ["2026-01-01"], [[], {}]),
    "decimal": (decimal.Decimal, ["1.5", 2], [{}, []]),
    "anything": (Any, [1, "a", None, [], {}], []),
    "nested": (
        list[dict[str, list[Cat]]],
        [[{"a": [{"kind": "cat", "lives": 1}]}]],
        [[{"a": [{}]}], [{"a": 1}]],
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_what_pydantic_makes_of_a_type_is_known_and_decides_as_pydantic_does(name):
    kind, good, bad = TYPES[name]
    adapter = TypeAdapter(kind)
    schema = check_schema(adapter.json_schema())
    for value in good:
        assert first_problem(value, schema) is None, value
        adapter.validate_python(value)
    for value in bad:
        assert first_problem(value, schema) is not None, value
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


@pytest.mark.parametrize(
    ("schema", "value", "path", "problem"),
    [
        ({"type": "object", "required": ["a"]}, {}, "$.a", "is missing"),
        (
            {"properties": {"a": {"items": {"properties": {"b": {"type": "string"}}}}}},
            {"a": [{}, {"b": 1}]},
            "$.a[1].b",
            "is not of type string",
        ),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"b": 1}, "$.b", "is not expected"),
        ({"type": ["integer", "null"]}, "x", "$", "is not of type integer or null"),
        ({"const": 1}, True, "$", "is not 1"),
        ({"enum": [0, 1]}, False, "$", "is not one of 0, 1"),
        ({"const": {"a": [1]}}, {"a": [True]}, "$", "is not {'a': [1]}"),
        ({"uniqueItems": True}, [1, 2, 1], "$[2]", "stands there twice"),
        (
            {"oneOf": [{"type": "number"}, {"minimum": 3}]},
            5,
            "$",
            "fits 2 of the alternatives, and only one is meant",
        ),
        (
            {"anyOf": [{"properties": {"a": {"type": "null"}}, "type": "object"}]},
            {"a": 1},
            "$.a",
            "is not of type null",
        ),
        ({"not": {"type": "null"}}, None, "$", "is what it must not be"),
        ({"propertyNames": {"pattern": "^a"}}, {"b": 1}, "$", "has the key 'b', which does not match '^a'"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "$", "has more keys than 1"),
        ({"$defs": {"a/b": {"type": "null"}}, "$ref": "#/$defs/a~1b"}, 1, "$", "is not of type null"),
        ({"prefixItems": [{"type": "null"}], "items": False}, [None, 1], "$[1]", "is not expected"),
        ({"multipleOf": 0.1}, 0.35, "$", "is not a multiple of 0.1"),
        ({"multipleOf": 2}, 1e-9, "$", "is not a multiple of 2"),
        ({"anyOf": [{"type": "null"}], "items": {"$ref": "#/anyOf/0"}}, 1, "$", "is not of type null"),
    ],
)
def test_a_problem_says_where_and_what(schema, value, path, problem):
    assert first_problem(value, check_schema(schema)) == (path, problem)


@pytest.mark.parametrize(
    "schema",
    [
        {"contains": {}},
        {"properties": {"a": {"if": {}}}},
        {"anyOf": [{"dependentRequired": {}}]},
        {"$defs": {"a": {"unheard": 1}}},
        {"items": {"unevaluatedItems": False}},
        {"type": "text"},
        {"type": 5},
        {"pattern": "("},
        {"minimum": "3"},
        {"multipleOf": 0},
        {"enum": "abc"},
        {"required": "abc"},
        {"properties": []},
        {"items": 7},
        {"uniqueItems": 1},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#"},
        {"$ref": "#properties", "properties": {}},
        {"$ref": "#/default", "default": {"type": "nonsense"}},
        {"$ref": "#/anyOf/1", "anyOf": [{}]},
        {"properties": {"a": {"$id": "https://example.org/a"}}},
        {"anyOf": []},
        {"type": []},
        {"required": [1]},
        {"minLength": -1},
        {"maxItems": 1.5},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        "string",
        None,
    ],
)
def test_a_schema_that_could_not_be_checked_is_refused(schema):
    with pytest.raises(InvalidInput) as refused:
        check_schema(schema)
    assert refused.value.field == "schema"
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 10**400),
        ({"multipleOf": 0.1}, 0.3),
        ({"multipleOf": 0.1}, 10**400),
        ({"multipleOf": 1e-9}, 1e300),
        ({"$id": "https://example.org", "$defs": {"a%": {"type": "null"}}, "$ref": "#/$defs/a%25"}, None),
    ],
)
def test_large_numbers_tenths_and_escaped_references_fit(schema, value):
    assert first_problem(value, check_schema(schema)) is None


def test_a_schema_that_is_nested_without_end_is_refused():
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"items": schema}
    with pytest.raises(InvalidInput, match="levels deep"):
        check_schema(schema)
