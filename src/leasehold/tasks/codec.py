"""Encodes a function's return value by its annotation, and decodes it to the same type."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

from leasehold.domain.checks.numbers import ALWAYS_FINITE, check_finite
from leasehold.domain.checks.payload import IN_ROW, Limit, encode, is_surely_storable
from leasehold.domain.errors import InvalidInput, NotSerializable
from leasehold.tasks.json_safe import changed, difference, is_json_safe, unreadable


class Codec:
    """The codec of one function's return value. Without an annotation the value is plain JSON."""

    def __init__(self, hint: Any, field: str) -> None:
        self._field = field
        self._adapter: TypeAdapter[Any] | None = None
        self._sure = True
        if hint is not Any and not isinstance(hint, TypeVar):
            self._adapter, self._sure = _read(hint, field)

    def encode(self, value: Any, limit: Limit = IN_ROW) -> str:
        """Raises NotSerializable for a value that does not fit the annotation, or would be read back as something
        else."""
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
        """Raises InvalidInput if the annotation has changed since the value was stored."""
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
    """Return the adapter, and whether values surely come back equal. Building it takes longer than many a step."""
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    return adapter, is_json_safe(adapter.core_schema)
