"""Converts records to JSON, for callers outside of the process, and back."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import types
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, create_model

from leasehold.domain.frozen import FROM_JSON, Encoded, Private, shown

EXAMPLE_ID = "019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10"
_IDS = ("id", "job_id")
_DECODED = BeforeValidator(lambda text: json.loads(text) if isinstance(text, str) else text)


class Record(BaseModel):
    """A model made from a value with the same attributes."""

    model_config = ConfigDict(from_attributes=True)


def to_json(kind: Any, value: object) -> Any:
    """Return the plain JSON of a record of this type, or of records in lists."""
    return _writer(kind).dump_python(as_models(kind, value), mode="json", by_alias=True)


def as_models(kind: Any, value: object) -> Any:
    """Return the value with a model instead of each record."""
    return _writer(kind).validate_python(value)


def from_json(kind: Any, data: Any) -> Any:
    """Return the record of this type from its JSON. Raises pydantic's ValidationError."""
    return _reader(kind).validate_python(data, context=FROM_JSON)


@cache
def _writer(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(json_type(kind))


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def json_type(kind: Any) -> Any:
    """Return the type with a model instead of each record: for the schemas of surfaces."""
    if isinstance(kind, type) and is_dataclass(kind):
        return model(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        plain, marks = parts[0], parts[1:]
        if (encoded := next((mark for mark in marks if isinstance(mark, Encoded)), None)) is not None:
            return Annotated[encoded.kind, _DECODED]
        return json_type(plain)
    if not parts or origin is None:
        return kind
    if origin is tuple and parts[-1] is ...:
        return list.__class_getitem__(json_type(parts[0]))
    if origin in (types.UnionType, Union):
        return Union.__getitem__(tuple(json_type(part) for part in parts))
    if origin in (list, dict):
        return origin.__class_getitem__(tuple(json_type(part) for part in parts))
    return kind


@cache
def model(record: type[Any]) -> type[BaseModel]:
    """Make a model of a record, without its private fields and with its `shown` properties. A field's help is its
    docstring."""
    hints, helps = get_type_hints(record, include_extras=True), _helps(record)
    found: dict[str, Any] = {}
    for one in fields(record):
        hint = hints[one.name]
        if not any(isinstance(mark, Private) for mark in getattr(hint, "__metadata__", ())):
            found[one.name] = hint
    for name, value in inspect.getmembers_static(record):
        if isinstance(value, shown):
            found[name] = get_type_hints(value.fget)["return"]
    made: dict[str, Any] = {
        # A field such as `schema` must not hide a method of pydantic: it has another name in Python.
        f"{name}_" if hasattr(Record, name) else name: (json_type(hint), _field(name, helps.get(name)))
        for name, hint in found.items()
    }
    return create_model(record.__name__, __base__=Record, __doc__=inspect.getdoc(record), **made)


def _field(name: str, help: str | None) -> Any:
    examples = [EXAMPLE_ID] if name in _IDS else None
    return Field(alias=name if hasattr(Record, name) else None, description=help, examples=examples)


def _helps(record: type[Any]) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases, and those of its properties."""
    found: dict[str, str] = {}
    for one in reversed(record.__mro__[:-1]):
        for statement, below in _statements(one):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
                case ast.FunctionDef(name=name), _:
                    found[name] = ast.get_docstring(statement) or ""
    return found


def _statements(kind: type[Any]) -> list[tuple[ast.stmt, ast.stmt | None]]:
    whole = _classes(kind.__module__).get(kind.__name__)
    body = [] if whole is None else whole.body
    return list(zip(body, [*body[1:], None], strict=True)) if body else []


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
