"""Signatures of task functions: which parameters are arguments, and of what type."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import (
    Any,
    ClassVar,
    NotRequired,  # pydantic needs its own kind before Python 3.12
    get_type_hints,
)

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import TypedDict

from leasehold.domain.errors import InvalidTask

CONTEXT_PARAMETER = "ctx"
"""The worker fills a parameter of this name, or annotated Context or SyncContext; it is not an argument."""


class HandlerContext:
    """Base class of the contexts that a handler may get."""

    annotation: ClassVar[str]


class AsyncHandlerContext(HandlerContext):
    annotation = "Context"


class SyncHandlerContext(HandlerContext):
    annotation = "SyncContext"


def context_parameter(
    function: Callable[..., Any], hints: Mapping[str, Any], task: str, is_async: bool
) -> str | None:
    """Return the parameter that takes the context; an async function needs the async context, a plain one the other."""
    for name in inspect.signature(function).parameters:
        hint = hints.get(name)
        if isinstance(hint, type) and issubclass(hint, HandlerContext):
            wanted = AsyncHandlerContext if is_async else SyncHandlerContext
            if not issubclass(hint, wanted):
                kind = "an async" if is_async else "a plain"
                raise InvalidTask(
                    name, f"task {task!r} is {kind} function", f"annotate it {wanted.annotation}"
                )
            return name
        if name == CONTEXT_PARAMETER and name not in hints:
            return name
    return None


def own_signature(function: Callable[..., Any], task: str, context: str | None) -> inspect.Signature:
    """Return the signature of the job: without the context, and only with named parameters."""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidTask(
                parameter.name,
                f"task {task!r} takes it without a fixed name",
                "name every argument of a task",
            )
    kept = [p for p in signature.parameters.values() if p.name != context]
    return signature.replace(parameters=kept)


def read_hints(function: Callable[..., Any], task: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidTask(
            "annotations",
            f"task {task!r} has an annotation that cannot be read ({error})",
            "import it at run time",
        ) from None


def arguments_type(
    task: str, signature: inspect.Signature, hints: Mapping[str, Any]
) -> TypeAdapter[dict[str, Any]]:
    """Build the arguments' type: a typed dict, not a model, so that an argument may be called `json` or `copy`."""
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        hint = hints.get(name, Any)
        fields[name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    arguments = TypedDict(task, fields)  # type: ignore[misc] # made at run time
    # By name or by alias: a caller writes the parameter's name, the store has its alias.
    config = ConfigDict(extra="forbid", populate_by_name=True)
    arguments.__pydantic_config__ = config  # type: ignore[attr-defined] # pydantic reads it
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        return adapter
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        problem = f"task {task!r} cannot be checked ({error})"
        raise InvalidTask("annotations", problem, "use types that pydantic knows") from None


def default_values(task: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults as JSON values, encoded in the same way as given values: keys, lanes and rates must not
    depend on whether an argument was left out."""
    defaulted = [p for p in signature.parameters.values() if p.default is not p.empty]
    if not defaulted:
        return {}
    adapter = arguments_type(task, signature.replace(parameters=defaulted), hints)
    return {p.name: _default_value(task, adapter, p.name, p.default) for p in defaulted}


def _default_value(task: str, adapter: TypeAdapter[dict[str, Any]], name: str, default: Any) -> Any:
    if default is None:
        return None  # many write `a: int = None`: accept it
    try:
        checked = adapter.validate_python({name: default})
    except ValidationError as error:
        message = error.errors(include_input=False, include_url=False)[0]["msg"]
        problem = f"task {task!r}: its default {default!r} does not fit its annotation ({message})"
        raise InvalidTask(name, problem, "change one of them") from None
    try:
        return adapter.dump_python(checked, mode="json")[name]
    except (ValueError, TypeError):
        return default  # a sentinel of the function, which is never stored
