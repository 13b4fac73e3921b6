"""A form made from the JSON schema of a question, and the JSON value made from what was filled in. Pure.

Fields are named by their place (`a`, `a.0`, `a.0.2`), never by what a schema calls them: those names can be anything.
Choices travel as their number. What a form cannot say well is asked for as JSON. The engine has the last word on every
value; here only what has no value at all is refused.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.surfaces.dashboard.schema_reading import Drawn, options_of, resolved, same, without_null

ROOT = "a"
FEW = 4
"""Choices that are shown side by side; more of them are a list."""
MOST_FIELDS = 60
LONG_TEXT = 200
"""Characters: what may be longer gets more than one line, and so does what is the whole answer."""
DEEPEST = 3
"""Objects inside objects that are still drawn as fields."""

Kind = Literal["text", "long", "number", "choice", "list", "many", "lines", "json", "free", "object"]
"""`choice` and `list` are one of several, as buttons or as a list; `many` is any of several; `free` is text or JSON."""
ABSENT: Any = object()
"""Nothing was said, and nothing had to be."""

_INPUTS = {
    "date": "date",
    "time": "time",
    "date-time": "datetime-local",
    "email": "email",
    "idn-email": "email",
    "uri": "url",
    "url": "url",
}
_HINTS = {"date-time": "In UTC."}


@frozen
class Choice:
    name: str
    """Of its control."""
    value: str
    """What its control sends."""
    text: str
    chosen: bool
    meant: Any
    """What it stands for."""


@frozen
class Field:
    kind: Kind
    name: str
    label: str
    hint: str = ""
    required: bool = True
    nullable: bool = False
    secret: bool = False
    type: str = "text"
    """Of an `<input>`."""
    value: str = ""
    """Filled in beforehand."""
    bounds: Mapping[str, str] | None = None
    """Attributes of its control: min, max, step, maxlength."""
    choices: tuple[Choice, ...] = ()
    fields: tuple[Field, ...] = ()
    keys: tuple[str, ...] = ()
    """What the fields of an object are called in it."""
    item: str = "string"
    """What each line is."""
    keeps_empty: bool = False
    """Nothing ticked is an empty list, not silence."""


# -- the form ----------------------------------------------------------------------------------------------------------
def form_of(schema: str | None, *, secret: bool = False) -> Field:
    """Of a question's schema, as it is stored. What is typed into a secret one is never seen."""
    try:
        root = None if schema is None else json.loads(schema)
    except (ValueError, RecursionError):
        root = None
    if root is None:
        return Field("free", ROOT, "Answer", secret=secret)
    if not isinstance(root, dict):
        return Field("json", ROOT, "Answer", secret=secret)
    made = _field(ROOT, "Answer", root, root, 0, required=True)
    if sum(1 for _ in _leaves(made)) > MOST_FIELDS:
        made = _as_json(ROOT, "Answer", root, required=True)
    return _hushed(made) if secret else made


def _field(name: str, label: str, schema: Any, root: Drawn, depth: int, *, required: bool) -> Field:
    told = resolved(schema, root)
    if told is None:
        return _as_json(name, label, {}, required=required)
    told, nullable = without_null(told, root)
    must = required and not nullable
    # What a reference leads to is titled for itself; several fields may lead there.
    titled = told if name == ROOT else schema
    made = _plain_field(name, str(titled.get("title") or label), told, root, depth, must)
    hint = " ".join(part for part in (str(told.get("description") or ""), made.hint) if part)
    return replace(made, required=required, nullable=nullable, hint=hint)


def _plain_field(name: str, label: str, schema: Drawn, root: Drawn, depth: int, required: bool) -> Field:
    options = options_of(schema, root)
    if options is not None:
        return _choice(name, label, options, schema, required)
    match schema.get("type"):
        case "boolean":
            return _choice(name, label, [("Yes", True), ("No", False)], schema, required)
        case "string":
            return _text(name, label, schema)
        case "integer" | "number":
            return _number(name, label, schema)
        case "array":
            return _array(name, label, schema, root)
        case "object" if schema.get("properties") and depth < DEEPEST:
            return _object(name, label, schema, root, depth)
    return _as_json(name, label, schema, required=required)


def _object(name: str, label: str, schema: Drawn, root: Drawn, depth: int) -> Field:
    needed = schema.get("required") or ()
    default = schema.get("default")
    fields = []
    for number, (key, inner) in enumerate(schema["properties"].items()):
        if isinstance(default, dict) and key in default and isinstance(inner, dict):
            inner = {**inner, "default": default[key]}
        fields.append(
            _field(f"{name}.{number}", _worded(key), inner, root, depth + 1, required=key in needed)
        )
    return Field("object", name, label, fields=tuple(fields), keys=tuple(schema["properties"]))


def _worded(key: str) -> str:
    """`street_name` as people write it; any other key is left as it is."""
    return key.replace("_", " ").strip().capitalize() if key.isidentifier() and key.islower() else key


def _text(name: str, label: str, schema: Drawn) -> Field:
    longest, form, default = schema.get("maxLength"), str(schema.get("format") or ""), schema.get("default")
    kind = _INPUTS.get(form, "text")
    value = default if isinstance(default, str) else ""
    bounds = {}
    if isinstance(longest, int) and kind in ("text", "email", "url"):
        bounds["maxlength"] = str(longest)
    roomy = longest > LONG_TEXT if isinstance(longest, int) else name == ROOT
    if (roomy and kind == "text" and not form) or "\n" in value:
        return Field("long", name, label, value=value, bounds=bounds)
    if kind == "datetime-local":
        value = _local(value)
    return Field("text", name, label, _HINTS.get(form, ""), type=kind, value=value, bounds=bounds)


def _local(text: str) -> str:
    """As such a control has it; empty for what is no time in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return found.replace(tzinfo=None).isoformat(timespec="seconds") if not found.utcoffset() else ""


def _number(name: str, label: str, schema: Drawn) -> Field:
    whole = schema["type"] == "integer"
    low, high = schema.get("minimum"), schema.get("maximum")
    if whole and low is None and "exclusiveMinimum" in schema:
        low = math.floor(schema["exclusiveMinimum"]) + 1
    if whole and high is None and "exclusiveMaximum" in schema:
        high = math.ceil(schema["exclusiveMaximum"]) - 1
    low = schema.get("exclusiveMinimum") if low is None else low
    high = schema.get("exclusiveMaximum") if high is None else high
    # A browser counts steps from the lowest value; a schema counts multiples from 0.
    step = "1" if whole else "any"
    bounds = {"step": step} | {key: str(one) for key, one in (("min", low), ("max", high)) if one is not None}
    default = schema.get("default")
    value = str(default) if isinstance(default, int | float) and not isinstance(default, bool) else ""
    hint = _span(low, high) + (f" A multiple of {schema['multipleOf']}." if "multipleOf" in schema else "")
    return Field("number", name, label, hint, type="number", value=value, bounds=bounds, item=schema["type"])


def _span(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"At least {low}." if low is not None else f"At most {high}." if high is not None else ""
    return f"{low} to {high}."


def _array(name: str, label: str, schema: Drawn, root: Drawn) -> Field:
    items = resolved(schema.get("items"), root)
    if items is None or "prefixItems" in schema:
        return _as_json(name, label, schema, required=True)
    default = schema.get("default")
    given: Sequence[Any] = default if isinstance(default, list) else ()
    options = options_of(items, root)
    if options is not None:
        choices = tuple(
            Choice(f"{name}.{number}", "1", text, any(same(meant, one) for one in given), meant)
            for number, (text, meant) in enumerate(options)
        )
        return Field("many", name, label, choices=choices, keeps_empty="default" in schema)
    if items.get("type") in ("string", "integer", "number"):
        value = "\n".join(str(one) for one in given)
        return Field(
            "lines",
            name,
            label,
            "One on each line.",
            value=value,
            item=items["type"],
            keeps_empty=bool(given),
        )
    return _as_json(name, label, schema, required=True)


def _choice(name: str, label: str, options: list[tuple[str, Any]], schema: Drawn, required: bool) -> Field:
    default = schema.get("default", ABSENT)
    made = [
        Choice(name, str(number), text, default is not ABSENT and same(default, meant), meant)
        for number, (text, meant) in enumerate(options)
    ]
    nothing = Choice(name, "", "Not said", not any(one.chosen for one in made), ABSENT)
    kind: Kind = "choice" if len(made) <= FEW else "list"
    return Field(kind, name, label, choices=tuple(made if required else [nothing, *made]))


def _as_json(name: str, label: str, schema: Drawn, *, required: bool) -> Field:
    value = json.dumps(schema["default"], indent=2, ensure_ascii=False) if "default" in schema else ""
    return Field("json", name, label, "As JSON.", required=required, value=value)


def _hushed(field: Field) -> Field:
    """Nothing of it is shown, not even what the schema fills in."""
    if field.kind in ("choice", "list", "many"):
        return replace(field, secret=True)
    return replace(field, secret=True, value="", fields=tuple(map(_hushed, field.fields)))


def _leaves(field: Field) -> list[Field]:
    return [leaf for one in field.fields for leaf in _leaves(one)] if field.fields else [field]


# -- the value ---------------------------------------------------------------------------------------------------------
def value_of(form: Field, given: Mapping[str, str]) -> Any:
    """The JSON value. Raises InvalidInput that names the field, and quotes nothing of what was typed."""
    value = _value(form, given, form.label)
    if value is ABSENT:
        raise InvalidInput(form.label, "is empty", "fill it in")
    return value


def _value(field: Field, given: Mapping[str, str], path: str) -> Any:
    if field.kind == "object":
        return _object_value(field, given, path)
    if field.kind == "many":
        ticked = [one.meant for one in field.choices if given.get(one.name)]
        return ticked if ticked or field.required or field.keeps_empty else ABSENT
    text = given.get(field.name, "")
    if field.kind in ("choice", "list"):
        chosen = next((one.meant for one in field.choices if one.value == text), ABSENT)
        return _nothing(field, path, "nothing is chosen", "choose one") if chosen is ABSENT else chosen
    if not text.strip() and not (field.kind == "lines" and (field.required or field.keeps_empty)):
        return _nothing(field, path, "is empty", "fill it in")
    match field.kind:
        case "number":
            return _as_number(text, field.item, path)
        case "lines":
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return [line if field.item == "string" else _as_number(line, field.item, path) for line in lines]
        case "json":
            return _parsed(text, path)
        case "free":
            return _parsed(text, path) if given.get(f"{field.name}.json") else text
    if field.type == "datetime-local":
        return _instant(text)
    return text


def _object_value(field: Field, given: Mapping[str, str], path: str) -> Any:
    if not field.required and not any(_is_touched(leaf, given) for leaf in _leaves(field)):
        return ABSENT
    inside = f"{path} › " if field.name != ROOT else ""
    found = {
        key: _value(one, given, inside + one.label) for key, one in zip(field.keys, field.fields, strict=True)
    }
    return {key: value for key, value in found.items() if value is not ABSENT}


def _is_touched(field: Field, given: Mapping[str, str]) -> bool:
    """Whether somebody has changed it: what was filled in beforehand tells nothing."""
    if field.kind == "many":
        return any(bool(given.get(one.name)) != one.chosen for one in field.choices)
    if field.kind in ("choice", "list"):
        return given.get(field.name, "") != next((one.value for one in field.choices if one.chosen), "")
    return given.get(field.name, "").strip() not in ("", field.value.strip())


def _nothing(field: Field, path: str, problem: str, remedy: str) -> Any:
    if not field.required:
        return ABSENT
    if field.nullable:
        return None
    raise InvalidInput(path, problem, remedy)


def _as_number(text: str, kind: str, path: str) -> int | float:
    wanted = "whole number" if kind == "integer" else "number"
    with contextlib.suppress(ValueError):
        return int(text)
    try:
        found = float(text)
    except ValueError:
        raise InvalidInput(path, f"is not a {wanted}", "write it in digits") from None
    if not math.isfinite(found) or (kind == "integer" and not found.is_integer()):
        raise InvalidInput(path, f"is not a {wanted}", "write it in digits")
    return int(found) if kind == "integer" else found


def _parsed(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(path, "is not JSON", 'write texts in quotes, such as "yes"') from None


def _instant(text: str) -> str:
    """Such a control knows no zone: it is meant in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if found.tzinfo is not None else f"{found.isoformat(timespec='seconds')}Z"
