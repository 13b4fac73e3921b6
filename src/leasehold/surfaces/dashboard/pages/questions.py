"""Questions page: the open questions of jobs, each with a form made from its schema."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.questions import OpenQuestion, Question
from leasehold.domain.states import State
from leasehold.operations import questions
from leasehold.surfaces.dashboard.page import DashboardPage, Done, action_of
from leasehold.surfaces.dashboard.page_request import Form, PageRequest

# -- the form of a schema ----------------------------------------------------------------------------------------------
# Pure.
#
# A plain value, and each plain property of an object, gets a field; any other value is typed as JSON. Fields are named
# by their position (`a`, `a.0`), because names in a schema can be any text. A choice is sent as its number. The engine
# checks every value against the schema; this page refuses only input that is not a value.

ROOT = "a"
MOST_FIELDS, MOST_CHOICES = 60, 200
MOST_STEPS = 20
"""References that are followed in a row."""
LONG_TEXT = 200
"""Characters. A text that may be longer gets several lines, and so does a text that is the whole answer."""

Kind = Literal["text", "long", "number", "choice", "json", "free", "object"]
"""`free` is text or JSON; a checkbox chooses."""
ABSENT: Any = object()
"""An optional field that was left empty."""

_INPUTS = {"date": "date", "time": "time", "date-time": "datetime-local", "email": "email", "uri": "url"}
_LIMITS = {"minimum": "At least", "exclusiveMinimum": "More than", "maximum": "At most"}
_LIMITS |= {"exclusiveMaximum": "Less than", "multipleOf": "A multiple of"}
_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")


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
    """The type of the `<input>`."""
    value: str = ""
    """The default; for a choice its number."""
    bounds: Mapping[str, str] | None = None
    """Attributes of the control: min, max, step, maxlength."""
    choices: tuple[tuple[str, Any], ...] = ()
    """The text of each choice and the value that it stands for."""
    wanted: str = ""
    """The schema that a JSON field shows."""
    fields: Mapping[str, Field] | None = None
    """The fields of an object, by property."""


# -- the form ----------------------------------------------------------------------------------------------------------
def form_of(schema: str | None, *, secret: bool = False) -> Field:
    """The form for a question's stored schema. A secret form shows neither defaults nor the typed text."""
    try:
        root = None if schema is None else json.loads(schema)
    except (ValueError, RecursionError):
        root = None
    if root is None:
        return Field("free", ROOT, "Answer", secret=secret)
    made, (found, _) = _field(ROOT, "Answer", root, root), _resolved(root, root)
    properties, needed = found.get("properties"), found.get("required") or ()
    if found.get("type") == "object" and isinstance(properties, dict) and 0 < len(properties) <= MOST_FIELDS:
        fields = {
            key: _field(f"{ROOT}.{number}", _worded(key), inner, root, required=key in needed)
            for number, (key, inner) in enumerate(properties.items())
        }
        hint = str(found.get("description") or "")
        made = replace(made, kind="object", value="", wanted="", hint=hint, fields=fields)
    return _hidden(made) if secret else made


def _hidden(field: Field) -> Field:
    fields = field.fields and {key: _hidden(one) for key, one in field.fields.items()}
    return replace(field, secret=True, value="", wanted="", fields=fields)


def _worded(key: str) -> str:
    """The label for a key: `street_name` gives "Street name"; any other key is left as it is."""
    return key.replace("_", " ").strip().capitalize() if key.isidentifier() and key.islower() else key


def _resolved(schema: Any, root: Any) -> tuple[dict[str, Any], bool]:
    """The schema with references followed and null removed, and whether it allows null. Empty: no field fits it."""
    nullable = False
    for _ in range(MOST_STEPS):
        if not isinstance(schema, dict):
            break
        types, parts = schema.get("type"), schema.get("anyOf")
        beside = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf")}
        if "$ref" in schema:
            schema = {**_target(schema["$ref"], root), **beside}
        elif isinstance(types, list) and len(types) == 2 and "null" in types:
            schema, nullable = {**schema, "type": types[1 - types.index("null")]}, True
        elif isinstance(parts, list) and len(parts) == 2 and {"type": "null"} in parts:
            other = parts[1 - parts.index({"type": "null"})]
            schema, nullable = {**other, **beside} if isinstance(other, dict) else None, True
        else:
            return schema, nullable
    return {}, nullable


def _target(reference: Any, root: Any) -> dict[str, Any]:
    found = root
    for part in str(reference).removeprefix("#/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _field(name: str, label: str, schema: Any, root: Any, *, required: bool = True) -> Field:
    found, nullable = _resolved(schema, root)
    # Several fields may refer to one schema: its title is not the label of any of them.
    titled = found if name == ROOT else schema if isinstance(schema, dict) else {}
    made = _control(Field("json", name, str(titled.get("title") or label)), found)
    if made.kind == "json":
        # Show the definitions that the schema refers to, so that the user knows what to write.
        refers = isinstance(schema, dict) and "$defs" in root and "$ref" in json.dumps(schema)
        wanted = {**schema, "$defs": root["$defs"]} if refers else schema
        made = replace(made, hint="As JSON.", value=_written(found.get("default")), wanted=_written(wanted))
    hint = f"{found.get('description') or ''} {made.hint}".strip()
    return replace(made, required=required, nullable=nullable, hint=hint)


def _written(value: Any) -> str:
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)


def _control(field: Field, schema: Mapping[str, Any]) -> Field:
    """The field with the control that fits a plain value; unchanged if no control does."""
    default, choices = schema.get("default"), _choices(schema)
    if choices:
        # Compared as text: True equals 1 in Python, but not in JSON.
        texts = [json.dumps(meant) for _, meant in choices]
        value = str(texts.index(json.dumps(default))) if json.dumps(default) in texts else ""
        return replace(
            field, kind="choice", value=value if "default" in schema else "", choices=tuple(choices)
        )
    if schema.get("type") in ("integer", "number"):
        value = str(default) if type(default) in (int, float) else ""
        hint = " ".join(f"{text} {schema[key]}." for key, text in _LIMITS.items() if key in schema)
        # A browser counts steps from the lowest value; a schema counts multiples from 0.
        bounds = {"step": "1" if schema["type"] == "integer" else "any"}
        bounds |= {key[:3]: str(schema[key]) for key in ("minimum", "maximum") if key in schema}
        return replace(field, kind="number", type="number", value=value, hint=hint, bounds=bounds)
    if schema.get("type") == "string":
        longest, value = schema.get("maxLength"), default if isinstance(default, str) else ""
        bounds = {"maxlength": str(longest)} if isinstance(longest, int) else {}
        control = _INPUTS.get(str(schema.get("format")), "text")
        roomy = longest > LONG_TEXT if isinstance(longest, int) else field.name == ROOT
        if (roomy and "format" not in schema) or "\n" in value:
            return replace(field, kind="long", value=value, bounds=bounds)
        if control == "datetime-local":  # this control has no time zone
            return replace(field, kind="text", type=control, value=value.removesuffix("Z"), hint="In UTC.")
        return replace(field, kind="text", type=control, value=value, bounds=bounds)
    return field


def _choices(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The text and the value of each choice. Empty: the schema allows any value, or too many."""
    parts = schema.get("oneOf")
    if isinstance(parts, list) and all(isinstance(one, dict) and "const" in one for one in parts):
        found = [(str(one.get("title") or _text_of(one["const"])), one["const"]) for one in parts]
    else:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        values = [True, False] if schema.get("type") == "boolean" and not values else values
        found = [(_text_of(one), one) for one in values] if isinstance(values, list) else []
    return found if len(found) <= MOST_CHOICES else []


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value or "(empty)"
    words = {"true": "Yes", "false": "No", "null": "none"}
    return words.get(text := json.dumps(value, ensure_ascii=False), text)


# -- the value ---------------------------------------------------------------------------------------------------------
def value_of(form: Field, given: Mapping[str, str]) -> Any:
    """The JSON value of a filled form. Raises InvalidInput with the field's label, and without the typed text."""
    if form.fields is None:
        return _value(form, given)
    if form.nullable and not any(given.get(one.name, "").strip() for one in form.fields.values()):
        return None
    found = {key: _value(one, given) for key, one in form.fields.items()}
    return {key: value for key, value in found.items() if value is not ABSENT}


def _value(field: Field, given: Mapping[str, str]) -> Any:
    text = given.get(field.name, "")
    numbered = {str(number): meant for number, (_, meant) in enumerate(field.choices)}
    if not (text in numbered if numbered else text.strip()):
        if field.required and not field.nullable:
            problem = ("nothing is chosen", "choose one") if numbered else ("is empty", "fill it in")
            raise InvalidInput(field.label, *problem)
        return None if field.required else ABSENT
    if numbered:
        return numbered[text]
    if field.kind == "number":
        return _as_number(text, field)
    if field.kind == "json" or (field.kind == "free" and given.get(f"{field.name}.json")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            remedy = 'write texts in quotes, such as "yes"'
            raise InvalidInput(field.label, "is not JSON", remedy) from None
    if field.type == "datetime-local" and (local := _LOCAL_TIME.fullmatch(text)):
        return f"{text}Z" if local[1] else f"{text}:00Z"
    return text


def _as_number(text: str, field: Field) -> int | float:
    with contextlib.suppress(ValueError):
        return int(text)
    whole = (field.bounds or {}).get("step") == "1"
    with contextlib.suppress(ValueError):
        found = float(text)
        if math.isfinite(found) and (found.is_integer() or not whole):
            return int(found) if whole else found
    raise InvalidInput(field.label, f"is not a {'whole ' if whole else ''}number", "write it in digits")


# -- questions ---------------------------------------------------------------------------------------------------------

ROWS = 50
CRITERIA = ("task", "queue", "group")


@frozen
class ShownQuestion:
    question: OpenQuestion
    form: Field
    id: str
    """The id of the form on the page; a question's key can be any text."""
    stamp: str


def read(page_request: PageRequest) -> dict[str, Any]:
    query = page_request.request.query_params
    requested = {name: query.get(name, "").strip() for name in CRITERIA}
    wanted = {name: value or None for name, value in requested.items()}
    found = page_request.operations.call(questions.open_questions, **wanted, limit=ROWS + 1)
    rows = page_request.caller.visible_rows(found[:ROWS])
    return {
        "questions": [_shown(row) for row in rows],
        "more": len(found) > ROWS,
        "requested": requested,
        "is_for_all": not any(requested.values()),
    }


def _shown(row: OpenQuestion) -> ShownQuestion:
    key = hashlib.sha256(row.key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return ShownQuestion(row, form_of(row.schema, secret=row.secret), f"{row.job_id}-{key}", _stamp(row))


def _stamp(question: OpenQuestion | Question) -> str:
    """A digest of the question that the user read: the job may have asked again with the same key and another form."""
    text = f"{question.text}\0{question.schema}\0{question.secret}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _answer(page_request: PageRequest, form: Form) -> Done:
    job, key = page_request.caller.job(form.text("job")), form.text("key")
    operations = page_request.operations
    found = operations.call(questions.questions, job.id)
    question = next((one for one in found if one.key == key and one.status == "open"), None)
    if question is None:
        raise InvalidInput("question", "is not open any more", "it was answered, or it has expired")
    if form.maybe("stamp") != _stamp(question):
        raise InvalidInput("question", "has changed meanwhile", "read it again, then answer it")
    value = value_of(form_of(question.schema, secret=question.secret), form.fields)
    after = operations.call(questions.answer, job.id, key, value, actor=page_request.caller.actor)
    match after.state:
        case State.PAUSED:
            return Done(f"Answered. The job {after.task} is paused and gets the answer when it is resumed.")
        case State.WAITING:
            return Done(f"Answered. The job {after.task} still waits for other answers.")
    return Done(f"Answered. The job {after.task} continues.")


PAGE = DashboardPage("questions", "questions", "questions.html", read)
ACTIONS = (action_of(questions.answer, _answer),)
