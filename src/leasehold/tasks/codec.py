"""Values through a function's return annotation: as JSON into the store, and back as what the function promised."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from leasehold.domain.checks.numbers import check_finite
from leasehold.domain.checks.payload import encode
from leasehold.domain.errors import InvalidInput, Unstorable


class Codec:
    """What one function returns. Without an annotation it is plain JSON."""

    def __init__(self, function: Callable[..., Any], field: str) -> None:
        self._field = field
        hint = _return_hint(function, field)
        self._adapter = None if hint is Any or isinstance(hint, TypeVar) else _adapter(hint, field)

    def encode(self, value: Any) -> str:
        if self._adapter is not None:
            check_finite(value, self._field)
            try:
                # Whether the value fits its annotation shows when it is decoded, which is always done.
                value = self._adapter.dump_python(value, mode="json", warnings=False)
            except ValueError as error:
                raise Unstorable(
                    self._field, f"cannot be kept as JSON ({error})", "return JSON values"
                ) from error
        return encode(value, self._field)

    def decode(self, text: str) -> Any:
        if self._adapter is None:
            return json.loads(text)
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise InvalidInput(
                self._field,
                f"does not fit the return annotation of its function ({error.errors()[0]['msg']})",
                "mend the function; resume with fresh=True if an older version of it has stored the result",
            ) from error


def _return_hint(function: Callable[..., Any], field: str) -> Any:
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


def _adapter(hint: Any, field: str) -> TypeAdapter[Any]:
    try:
        try:
            return _cached_adapter(hint)
        except TypeError:  # a hint that cannot be a key
            return TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise InvalidInput(
            field,
            f"has a return annotation that cannot be checked ({error})",
            "use types that pydantic knows",
        ) from None


@functools.lru_cache(maxsize=1024)
def _cached_adapter(hint: Any) -> TypeAdapter[Any]:
    """Building one takes longer than many a step."""
    return TypeAdapter(hint)
