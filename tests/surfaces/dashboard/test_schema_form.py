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
from leasehold.surfaces.dashboard.schema_form import form_of, value_of


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
    asked = form({"type": "boolean"})
    assert (asked.kind, [(one.text, one.chosen) for one in asked.choices]) == (
        "choice",
        [("Yes", False), ("No", False)],
    )
    assert answered({"type": "boolean"}, a="0") is True
    assert answered({"type": "boolean"}, a="1") is False
    assert form({"type": "boolean", "default": False}).choices[1].chosen
    with pytest.raises(InvalidInput, match="Answer: nothing is chosen"):
        answered({"type": "boolean"})
    with pytest.raises(InvalidInput, match="nothing is chosen"):
        answered({"type": "boolean"}, a="yes")


def test_a_few_choices_are_buttons_and_many_are_a_list():
    few, many = {"enum": ["a", 1, None, True]}, {"enum": list("abcde"), "default": "c"}
    assert (form(few).kind, form(many).kind) == ("choice", "list")
    assert [answered(few, a=str(number)) for number in range(4)] == ["a", 1, None, True]
    assert [one.text for one in form(few).choices] == ["a", "1", "none", "Yes"]
    assert [one.chosen for one in form(many).choices] == [False, False, True, False, False]
    assert 'value="2" selected' in drawn(form(many))
    assert answered(many, a="4") == "e"


def test_choices_with_titles():
    schema = {"oneOf": [{"const": "de", "title": "Germany"}, {"const": "fr", "title": "France"}]}
    assert [one.text for one in form(schema).choices] == ["Germany", "France"]
    assert answered(schema, a="1") == "fr"
    assert answered({"const": 7}, a="0") == 7


@pytest.mark.parametrize(
    ("schema", "kind", "type"),
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
def test_texts(schema: dict[str, Any], kind: str, type: str):
    asked = form({"type": "string", **schema})
    assert (asked.kind, asked.type) == (kind, type)


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
    assert form(whole).bounds == {"step": "1", "min": "1", "max": "20"}
    assert (form(whole).value, form(whole).hint) == ("3", "1 to 20.")
    assert [answered(whole, a=text) for text in ("7", "1e1", "5.0")] == [7, 10, 5]
    for wrong in ("7.5", "seven", "nan", "9" * 5000):
        with pytest.raises(InvalidInput, match="Answer: is not a whole number; write it in digits"):
            answered(whole, a=wrong)
    assert form({"type": "number", "minimum": 0.5}).bounds == {"step": "any", "min": "0.5"}
    assert answered({"type": "number"}, a="2.5") == 2.5
    assert isinstance(answered({"type": "number"}, a="2"), int)
    with pytest.raises(InvalidInput, match="is not a number"):
        answered({"type": "number"}, a="inf")


def test_lists():
    colours = {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "default": ["blue"]}
    assert [one.chosen for one in form(colours).choices] == [False, False, True]
    assert answered(colours, a_0="1", a_2="1") == ["red", "blue"]
    assert answered(colours) == []
    lines = {"type": "array", "items": {"type": "string"}, "default": ["x"]}
    assert form(lines).value == "x"
    assert answered(lines, a="one\n\n two \n") == ["one", "two"]
    assert answered({"type": "array", "items": {"type": "integer"}}, a="1\n2") == [1, 2]
    assert form({"type": "array", "items": {"type": "object"}}).kind == "json"


def test_what_a_form_cannot_say_is_json():
    for schema in ({}, {"type": ["string", "integer"]}, {"type": "object"}, {"not": {}}, True):
        assert form(schema).kind == "json"
    assert answered({"type": "object"}, a='{"a": [1]}') == {"a": [1]}
    assert form({"type": "object", "default": {"a": 1}}).value == '{\n  "a": 1\n}'
    with pytest.raises(InvalidInput, match="Answer: is not JSON"):
        answered({"type": "object"}, a="{a")


def test_without_a_schema_it_is_text_unless_told_otherwise():
    asked = form_of(None)
    assert value_of(asked, {"a": "[1]"}) == "[1]"
    assert value_of(asked, {"a": "[1]", "a.json": "1"}) == [1]
    assert 'name="a.json"' in drawn(asked)


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


def test_an_object_is_its_fields():
    schema = TypeAdapter(Order).json_schema()
    asked = form(schema)
    assert [(one.label, one.kind, one.required) for one in asked.fields] == [
        ("Approve it?", "choice", True),
        ("Speed", "choice", False),
        ("Amount", "number", True),
        ("Share", "number", False),
        ("Extras", "many", False),
        ("Address", "object", True),
        ("Second", "object", False),
        ("More", "json", False),
    ]
    assert asked.fields[0].hint == "No sends it back."
    assert asked.fields[5].fields[1].value == "Berlin"
    given = {"a.0": "0", "a.1": "0", "a.2": "3", "a.4.0": "1", "a.5.0": "Main 1"}
    given |= {"a.6.0": "", "a.6.1": "Berlin"}  # as the page has filled it in
    value = value_of(asked, given)
    assert value == {
        "approve": True,
        "speed": "slow",
        "amount": 3,
        "extras": ["gift"],
        "address": {"street": "Main 1"},
    }
    assert first_problem(value, schema) is None
    with pytest.raises(InvalidInput, match=r"^Amount: is empty"):
        value_of(asked, given | {"a.2": ""})
    with pytest.raises(InvalidInput, match=r"^Address › Street: is empty"):
        value_of(asked, given | {"a.5.0": ""})
    with pytest.raises(InvalidInput, match=r"^Second › Street: is empty"):
        value_of(asked, given | {"a.6.1": "Rome"})
    text = drawn(asked)
    assert text.count("(optional)") == 7
    assert re.findall('id="x-(a.[56].0)"[^>]* required', text) == ["a.5.0"]
    assert text.count('id="x-a.2"') == text.count('for="x-a.2"') == 1


def test_what_may_be_null_may_be_left_empty():
    for schema in (
        {"type": ["integer", "null"]},
        {"anyOf": [{"type": "null"}, {"type": "integer"}]},
        {"anyOf": [{"enum": [1, 2]}, {"type": "null"}]},
    ):
        assert answered(schema) is None
    assert answered({"type": ["integer", "null"]}, a="4") == 4


def test_references_lead_somewhere_or_to_json():
    tree = {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }
    assert form(tree).fields[0].fields[0].fields[0].kind == "json"
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
        },
    }
    text = drawn(form(schema, secret=True))
    assert text.count('type="password"') == 2
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
        },
    }
    text = drawn(form(schema))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
