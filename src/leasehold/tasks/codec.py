"""Encodes a function's return value by its annotation, decodes it to the same type, and checks that this works."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

from leasehold.domain.checks.numbers import ALWAYS_FINITE, check_finite
from leasehold.domain.checks.payload import IN_ROW, Limit, encode, is_surely_storable
from leasehold.domain.errors import InvalidInput, NotSerializable


class Codec:
    """The codec of one function's return value. Without an annotation the value is plain JSON."""

    def __init__(self, hint: Any, field: str) -> None:
        self._field = field
        self._adapter: TypeAdapter[Any] | None = None
        self._sure = True
        if hint is not Any and not isinstance(hint, TypeVar):
            self._adapter, self._sure = _read(hint, field)

    def encode(self, value: Any, limit: Limit = IN_ROW) -> str:
        """Encode a value. Raises NotSerializable if it does not fit the annotation, or would be read back as
        something else."""
        if self._adapter is None:
            return encode(value, self._field, limit)
        checked = self._checked(self._adapter, value)
        text = self._dumped(self._adapter, checked, limit)
        if not self._sure:
            self._compare(checked, text)
        return text

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the stored value; empty: anything, or a type that no schema can describe."""
        if self._adapter is None:
            return {}
        try:
            return self._adapter.json_schema(mode="serialization")
        except PydanticInvalidForJsonSchema:
            return {}

    def pack(self, value: Any) -> tuple[str, Any]:
        """Return the value as it is stored, and as a reader gets it."""
        text = self.encode(value)
        return text, self.decode(text)

    def decode(self, text: str) -> Any:
        """Decode a value. Raises InvalidInput if it does not fit the annotation, which may have changed since."""
        if self._adapter is None:
            return json.loads(text)
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise InvalidInput(
                self._field,
                f"does not fit the return annotation of its function ({_problem(error)})",
                "fix the function; resume with fresh=True if an older version of it has stored the result",
            ) from error

    @functools.cached_property
    def takes_none(self) -> bool:
        try:
            self.encode(None)
        except NotSerializable:
            return False
        return True

    def _checked(self, adapter: TypeAdapter[Any], value: Any) -> Any:
        if type(value) not in ALWAYS_FINITE:
            check_finite(value, self._field)
        try:
            return adapter.validator.validate_python(value)
        except ValidationError as error:
            raise NotSerializable(
                self._field,
                f"does not fit the return annotation of its function ({_problem(error)})",
                "return what the annotation says, or change it",
            ) from None

    def _dumped(self, adapter: TypeAdapter[Any], checked: Any, limit: Limit) -> str:
        try:
            text = adapter.dump_json(checked, by_alias=True, warnings=False).decode()
            if is_surely_storable(text):
                return text
            plain = adapter.dump_python(checked, mode="json", by_alias=True, warnings=False)
        except ValueError as error:
            raise NotSerializable(
                self._field, f"cannot be kept as JSON ({error})", "return JSON values"
            ) from error
        return encode(plain, self._field, limit)

    def _compare(self, checked: Any, text: str) -> None:
        assert self._adapter is not None
        try:
            back = self._adapter.validate_json(text)
        except ValidationError as error:
            raise unreadable(error, self._field) from None
        if (where := difference(checked, back, self._field)) is not None:
            raise changed(where)


def return_hint(function: Callable[..., Any], field: str) -> Any:
    """Return the return annotation; Any if there is none."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    annotations = getattr(function, "__annotations__", {})
    if inspect.isclass(function) or "return" not in annotations:
        return Any
    hint = annotations["return"]
    if isinstance(hint, str):
        try:
            hint = get_type_hints(function, include_extras=True)["return"]
        except NameError as error:
            raise InvalidInput(
                field, f"has a return annotation that cannot be read ({error})", "import it at run time"
            ) from None
    if get_origin(hint) in (Awaitable, Coroutine):
        hint = get_args(hint)[-1]
    return hint


def _problem(error: ValidationError) -> str:
    return error.errors(include_input=False, include_url=False)[0]["msg"]


def _read(hint: Any, field: str) -> tuple[TypeAdapter[Any], bool]:
    try:
        try:
            return _read_once(hint)
        except TypeError:  # an unhashable hint
            return _read_once.__wrapped__(hint)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise InvalidInput(
            field,
            f"has a return annotation that cannot be checked ({error})",
            "use types that pydantic knows",
        ) from None


@functools.lru_cache(maxsize=1024)
def _read_once(hint: Any) -> tuple[TypeAdapter[Any], bool]:
    """Return the adapter, and whether values surely come back equal. Building it may take longer than a step."""
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    return adapter, is_json_safe(adapter.core_schema)


# -- values that are read back as they were written --------------------------------------------------------------------
# Most annotations lose nothing in JSON, and this is known when a task is registered: their values need no
# check. Values of others (models, whose subclasses have more fields; secrets; aliases; custom validators; no
# annotation) are encoded, decoded and compared at the call, while the caller can still get an error.

REMEDY = (
    "pass what JSON carries as it is: no secrets, no excluded or computed fields, no alias of one direction, "
    "no subclass of the annotated class, no keys but text"
)

_SCALARS = frozenset({"none", "bool", "int", "float", "str", "date", "datetime", "decimal", "uuid"})
_KEYS = frozenset({"str", "int", "date", "uuid"})
_APART = frozenset({"none", "bool", "int", "float", "str"})
"""Types that JSON keeps apart, so that a union of them decodes to the right one."""
_PLAIN = frozenset({str, int, bool, type(None)})

Schema = Mapping[str, Any]
"""A core schema of pydantic, compiled from an annotation."""


def is_json_safe(schema: Schema) -> bool:
    """Return whether values of this schema always decode to the same value. Others are compared at every call."""
    kind = schema["type"]
    if "serialization" in schema:
        return False
    if kind in _SCALARS:
        return True
    match kind:
        case "nullable" | "default" | "definitions":
            return is_json_safe(schema["schema"])
        case "enum":
            return all(type(member.value) in _PLAIN for member in schema["members"])
        case "literal":
            return all(type(value) in _PLAIN for value in schema["expected"])
        case "list" | "set" | "frozenset":
            return is_json_safe(schema.get("items_schema", _ANY))
        case "tuple":
            return all(map(is_json_safe, schema["items_schema"]))
        case "dict":
            keys, values = schema.get("keys_schema", _ANY), schema.get("values_schema", _ANY)
            return keys["type"] in _KEYS and is_json_safe(keys) and is_json_safe(values)
        case "union":
            choices = [one[0] if isinstance(one, tuple) else one for one in schema["choices"]]
            return all(one["type"] in _APART and is_json_safe(one) for one in choices)
        case "typed-dict":
            return _has_only_its_fields(schema) and all(map(field_comes_back, schema["fields"].values()))
        case _:
            return False


def field_comes_back(field: Schema) -> bool:
    """Return whether a field of a typed dict has one name in both directions, and is stored at all."""
    read, written = field.get("validation_alias"), field.get("serialization_alias")
    one_name = read == written and (read is None or isinstance(read, str))
    return one_name and not field.get("serialization_exclude") and is_json_safe(field["schema"])


def _has_only_its_fields(schema: Schema) -> bool:
    return not schema.get("computed_fields") and schema.get("extra_behavior") != "allow"


_ANY: Schema = {"type": "any"}


def difference(before: Any, after: Any, field: str) -> str | None:
    """Return the name of the first part that did not come back as it was."""
    if before is after or isinstance(before, Iterator):
        return None  # storing used the iterator up: there is nothing to compare
    if isinstance(before, Mapping):
        if not isinstance(after, Mapping) or before.keys() != after.keys():
            return field
        return _first((value, after[name], f"{field}.{name}") for name, value in before.items())
    if isinstance(before, list | tuple):
        # Without an annotation a tuple comes back as a list: JSON has only lists.
        if not isinstance(after, list | tuple) or len(before) != len(after):
            return field
        pairs = enumerate(zip(before, after, strict=True))
        return _first((one, other, f"{field}[{index}]") for index, (one, other) in pairs)
    parts = _parts(before)
    if parts is not None:
        others = _parts(after) if type(after) is type(before) else None
        return field if others is None else difference(parts, others, field)
    return None if _equal(before, after) else field


def _first(pairs: Iterator[tuple[Any, Any, str]]) -> str | None:
    return next((found for one, other, name in pairs if (found := difference(one, other, name))), None)


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, a model, or another object without an equality method."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    if hasattr(type(value), "model_fields"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    if "__eq__" not in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}:
        return dict(getattr(value, "__dict__", {}))
    return None


def _equal(before: Any, after: Any) -> bool:
    try:
        return bool(before == after)
    except Exception:
        return True  # trust a type that cannot be compared


def unreadable(error: ValidationError, field: str) -> NotSerializable:
    """Build the error for a value that could be stored but not read again."""
    first = error.errors(include_input=False, include_url=False)[0]
    name = ".".join([field, *map(str, first["loc"])])
    return NotSerializable(name, f"could not be read again ({first['msg']})", REMEDY)


def changed(field: str) -> NotSerializable:
    return NotSerializable(field, "would not come back as it is", REMEDY)
