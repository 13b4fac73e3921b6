"""Questions as forms, and forms as answers."""

from __future__ import annotations

import pytest

from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.mcp.tools import answer_of, form_of

FLAT = {
    "type": "object",
    "properties": {"yes": {"type": "boolean"}, "n": {"type": "integer"}},
    "required": ["yes"],
}
NESTED = {"type": "object", "properties": {"who": {"type": "object"}}}


def test_a_flat_object_is_a_form_as_it_is():
    assert form_of(FLAT) == FLAT
    assert answer_of(FLAT, {"yes": True}) == {"yes": True}


@pytest.mark.parametrize(("schema", "value"), [({"type": "boolean"}, False), ({"type": "string"}, "[1]")])
def test_a_single_value_is_a_form_with_one_field(schema, value):
    assert form_of(schema) == {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    assert answer_of(schema, {"value": value}) == value


@pytest.mark.parametrize("schema", [None, {}, NESTED, {"type": "array"}, {"anyOf": [{"type": "null"}]}])
def test_what_no_field_can_show_is_asked_for_as_json(schema):
    assert form_of(schema)["properties"]["value"]["type"] == "string"
    assert answer_of(schema, {"value": '{"who": {"a": 1}}'}) == {"who": {"a": 1}}
    with pytest.raises(InvalidInput, match="JSON"):
        answer_of(schema, {"value": "{"})


def test_an_empty_form_is_refused():
    with pytest.raises(InvalidInput, match="value"):
        answer_of({"type": "string"}, {})
