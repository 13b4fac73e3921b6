"""Forms made from JSON schemas, and what comes back of them."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from leasehold.domain.checks.json_schema import first_problem
from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.dashboard import render
from leasehold.surfaces.dashboard.pages.questions import form_of, value_of


def form(schema: Any, **more: Any):
    return form_of(json.dumps(schema), **more)


def answered(schema: Any, **given: str) -> Any:
    return value_of(form(schema), {name.replace("_", "."): text for name, text in given.items()})


def drawn(field: Any) -> str:
    """As the page has it."""
    made = render._environment().from_string(
        '{% import "fields.html" as fields with context %}{{ fields.show(form, "x-") }}'
    )
    return made.render(form=field)


def test_yes_or_no():
    requested = form({"type": "boolean"})
    assert (requested.kind, requested.choices, requested.value) == (
        "choice",
        (("Yes", True), ("No", False)),
        "",
    )
    assert answered({"type": "boolean"}, a="0") is True
    assert answered({"type": "boolean"}, a="1") is False
    assert form({"type": "boolean", "default": False}).value == "1"
    assert drawn(form({"type": "boolean", "default": False})).count(" checked") == 1
    with pytest.raises(InvalidInput, match="Answer: nothing is chosen"):
        answered({"type": "boolean"})
    with pytest.raises(InvalidInput, match="nothing is chosen"):
        answered({"type": "boolean"}, a="yes")


def test_a_few_choices_are_buttons_and_many_are_a_list():
    few, many = {"enum": ["a", 1, None, True]}, {"enum": list("abcde"), "default": "c"}
    assert drawn(form(few)).count('type="radio"') == 4
    assert [answered(few, a=str(number)) for number in range(4)] == ["a", 1, None, True]
    assert [text for text, _ in form(few).choices] == ["a", "1", "none", "Yes"]
    assert form({**few, "default": True}).value == "3", "True is not 1"
    assert form({"enum": list(range(201))}).kind == "json"
    assert 'value="2" selected' in drawn(form(many))
    assert answered(many, a="4") == "e"


def test_choices_with_titles():
    schema = {"oneOf": [{"const": "de", "title": "Germany"}, {"const": "fr", "title": "France"}]}
    assert [text for text, _ in form(schema).choices] == ["Germany", "France"]
    assert answered(schema, a="1") == "fr"
    assert answered({"const": 7}, a="0") == 7


@pytest.mark.parametrize(
    ("schema", "task", "type"),
    [
        ({}, "long", "text"),
        ({"maxLength": 50}, "text", "text"),
        ({"maxLength": 5000}, "long", "text"),
        ({"format": "date"}, "text", "date"),
        ({"format": "time"}, "text", "time"),
        ({"format": "email"}, "text", "email"),
        ({"format": "uri"}, "text", "url"),
        ({"format": "date-time"}, "text", "datetime-local"),
        ({"format": "uuid"}, "text", "text"),
    ],
)
def test_texts(schema: dict[str, Any], task: str, type: str):
    requested = form({"type": "string", **schema})
    assert (requested.kind, requested.type) == (task, type)


def test_texts_come_back_as_they_were_typed():
    text = {"type": "string", "maxLength": 9, "default": "<b>"}
    assert form(text).value == "<b>"
    assert 'maxlength="9"' in drawn(form(text))
    assert "&lt;b&gt;" in drawn(form(text))
    assert answered(text, a=" x ") == " x "
    instant = {"type": "string", "format": "date-time", "default": "2026-11-17T09:00:00Z"}
    assert form(instant).value == "2026-11-17T09:00:00"
    assert answered(instant, a="2026-11-17T09:30") == "2026-11-17T09:30:00Z"
    with pytest.raises(InvalidInput, match="Answer: is empty; fill it in"):
        answered(text, a="  ")


def test_numbers():
    whole = {"type": "integer", "exclusiveMinimum": 0, "maximum": 20, "default": 3}
    assert form(whole).bounds == {"step": "1", "max": "20"}
    assert (form(whole).value, form(whole).hint) == ("3", "More than 0. At most 20.")
    assert [answered(whole, a=text) for text in ("7", "1e1", "5.0")] == [7, 10, 5]
    for wrong in ("7.5", "seven", "nan", "9" * 5000):
        with pytest.raises(InvalidInput, match="Answer: is not a whole number; write it in digits"):
            answered(whole, a=wrong)
    assert form({"type": "number", "minimum": 0.5}).bounds == {"step": "any", "min": "0.5"}
    assert answered({"type": "number"}, a="2.5") == 2.5
    assert isinstance(answered({"type": "number"}, a="2"), int)
    with pytest.raises(InvalidInput, match="is not a number"):
        answered({"type": "number"}, a="inf")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, None),
        (True, ["a", 1]),
        ({"not": {}}, 0),
        ({"type": "object"}, {"a": [1]}),
        ({"type": ["string", "integer"]}, "a"),
        ({"type": "array", "items": {"enum": ["red", "green", "blue"]}}, ["red", "blue"]),
        ({"type": "array", "items": {"type": "string"}}, [" one ", ""]),
        ({"type": "array", "items": {"type": "object"}}, []),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, {"b": None}),
    ],
)
def test_what_is_no_plain_value_is_json(schema: Any, value: Any):
    requested = form(schema)
    assert (requested.kind, requested.hint) == ("json", "As JSON.")
    assert json.loads(requested.wanted) == schema, "a reader sees what fits"
    assert answered(schema, a=json.dumps(value)) == value
    with pytest.raises(InvalidInput, match="Answer: is not JSON"):
        answered(schema, a="{a")
    with pytest.raises(InvalidInput, match="Answer: is empty"):
        answered(schema)


def test_a_default_is_filled_in_as_json():
    assert form({"type": "object", "default": {"a": 1}}).value == '{\n  "a": 1\n}'
    assert form({"default": None}).value == ""


def test_without_a_schema_it_is_text_unless_told_otherwise():
    requested = form_of(None)
    assert value_of(requested, {"a": "[1]"}) == "[1]"
    assert value_of(requested, {"a": "[1]", "a.json": "1"}) == [1]
    assert 'name="a.json"' in drawn(requested)


class Address(BaseModel):
    street: str
    city: str = "Berlin"


class Order(BaseModel):
    approve: bool = Field(title="Approve it?", description="No sends it back.")
    speed: Literal["slow", "fast"] = "fast"
    amount: int = Field(ge=1)
    share: float | None = None
    extras: list[Literal["gift", "call"]] = []
    address: Address
    second: Address | None = None
    more: dict[str, int] = {}


def test_an_object_has_a_field_for_each_plain_property_and_json_for_the_rest():
    schema = TypeAdapter(Order).json_schema()
    requested = form(schema)
    assert [(one.label, one.kind, one.required) for one in requested.fields.values()] == [
        ("Approve it?", "choice", True),
        ("Speed", "choice", False),
        ("Amount", "number", True),
        ("Share", "number", False),
        ("Extras", "json", False),
        ("Address", "json", True),
        ("Second", "json", False),
        ("More", "json", False),
    ]
    assert requested.fields["approve"].hint == "No sends it back."
    assert (requested.fields["speed"].value, requested.fields["extras"].value) == ("1", "[]")
    assert "street" in json.loads(requested.fields["second"].wanted)["$defs"]["Address"]["properties"]
    given = {"a.0": "0", "a.1": "0", "a.2": "3", "a.4": '["gift"]', "a.5": '{"street": "Main 1"}'}
    value = value_of(requested, given)
    assert value == {
        "approve": True,
        "speed": "slow",
        "amount": 3,
        "extras": ["gift"],
        "address": {"street": "Main 1"},
    }
    assert first_problem(value, schema) is None
    assert value_of(requested, given | {"a.6": "null", "a.7": '{"x": 1}'}) == value | {
        "second": None,
        "more": {"x": 1},
    }
    with pytest.raises(InvalidInput, match=r"^Amount: is empty"):
        value_of(requested, given | {"a.2": ""})
    with pytest.raises(InvalidInput, match=r"^Address: is not JSON"):
        value_of(requested, given | {"a.5": "Main 1"})
    text = drawn(requested)
    assert text.count("(optional)") == 5
    assert re.findall('id="x-(a.[567])"[^>]* required', text) == ["a.5"]
    assert text.count('id="x-a.2"') == text.count('for="x-a.2"') == 1
    assert text.count("Not said") == 1


def test_what_may_be_null_may_be_left_empty():
    for schema in (
        {"type": ["integer", "null"]},
        {"anyOf": [{"type": "null"}, {"type": "integer"}]},
        {"anyOf": [{"enum": [1, 2]}, {"type": "null"}]},
    ):
        assert answered(schema) is None
    assert answered({"type": ["integer", "null"]}, a="4") == 4


def test_an_object_that_may_be_null_may_be_left_empty():
    schema = {
        "anyOf": [{"type": "object", "properties": {"n": {"type": "integer"}}}, {"type": "null"}],
    }
    assert answered(schema) is None
    assert answered(schema, a_0="4") == {"n": 4}


def test_references_lead_somewhere_or_to_json():
    tree = {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"$ref": "#/$defs/a~1b"}},
            },
            "a/b": {"type": "integer", "title": "A number"},
        },
        "$ref": "#/$defs/node",
    }
    assert [(one.kind, one.label) for one in form(tree).fields.values()] == [
        ("json", "Next"),
        ("number", "N"),
    ]
    loop = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    assert form(loop).kind == "json"
    assert form({"$ref": "#/$defs/nothing"}).kind == "json"
    wide = {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(61)}}
    assert form(wide).kind == "json"


def test_a_secret_is_never_filled_in_nor_seen():
    schema = {
        "type": "object",
        "properties": {
            "pin": {"type": "integer", "default": 4711},
            "note": {"type": "string", "default": "n0te"},
            "more": {"type": "array", "default": ["n0te"]},
            "sure": {"type": "boolean", "default": True},
        },
    }
    text = drawn(form(schema, secret=True))
    assert text.count('type="password"') == 3
    assert re.findall('value="([^"]*)" checked', text) == [""]
    assert "4711" not in text
    assert "n0te" not in text
    assert 'type="password"' in drawn(form_of(None, secret=True))
    for schema, typed in (({"type": "integer"}, "s3cret"), ({"type": "object"}, "{s3cret")):
        with pytest.raises(InvalidInput) as caught:
            value_of(form(schema, secret=True), {"a": typed})
        assert "s3cret" not in str(caught.value)


def test_hostile_words_are_escaped():
    evil = "<script>\"'"
    schema = {
        "title": evil,
        "type": "object",
        "properties": {
            evil: {"enum": [evil, "b"], "description": evil},
            "n": {"type": "string", "title": evil},
            "j": {"type": "array", "title": evil, "default": [evil]},
        },
    }
    text = drawn(form(schema))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
