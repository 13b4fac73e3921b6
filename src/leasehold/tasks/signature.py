"""A task's function: which of its parameters are arguments, and of what type."""

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
"""A parameter of this name, or annotated Context or SyncContext, is filled by the worker; it is not an argument."""


class HandlerContext:
    """Marks what a handler may be given as its context."""

    annotation: ClassVar[str]


class AsyncHandlerContext(HandlerContext):
    annotation = "Context"


class SyncHandlerContext(HandlerContext):
    annotation = "SyncContext"


def context_parameter(
    function: Callable[..., Any], hints: Mapping[str, Any], task: str, is_async: bool
) -> str | None:
    """Which parameter takes the context; its colour must be the function's."""
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
    """The signature of the job: without the context, and only with parameters that have names."""
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
    """A typed dict and not a model: an argument may be called `json` or `copy` without meeting a method."""
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        hint = hints.get(name, Any)
        fields[name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    arguments = TypedDict(task, fields)  # type: ignore[misc]
    # By name or by alias: a caller writes the parameter's name, what is stored has its alias.
    config = ConfigDict(extra="forbid", populate_by_name=True)
    arguments.__pydantic_config__ = config  # type: ignore[attr-defined]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        return adapter
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        problem = f"task {task!r} cannot be checked ({error})"
        raise InvalidTask("annotations", problem, "use types that pydantic knows") from None


def default_values(task: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults as JSON values, by the same way that values which are given take: what is made from arguments (keys,
    lanes, rates) must not depend on whether one was left out."""
    defaulted = [p for p in signature.parameters.values() if p.default is not p.empty]
    if not defaulted:
        return {}
    adapter = arguments_type(task, signature.replace(parameters=defaulted), hints)
    return {p.name: _default_value(task, adapter, p.name, p.default) for p in defaulted}


def _default_value(task: str, adapter: TypeAdapter[dict[str, Any]], name: str, default: Any) -> Any:
    if default is None:
        return None  # many write `a: int = None`: it is taken as it is
    try:
        checked = adapter.validate_python({name: default})
    except ValidationError as error:
        told = error.errors(include_input=False, include_url=False)[0]["msg"]
        problem = f"task {task!r}: its default {default!r} does not fit its annotation ({told})"
        raise InvalidTask(name, problem, "change one of them") from None
    try:
        return adapter.dump_python(checked, mode="json")[name]
    except (ValueError, TypeError):
        return default  # a mark of the function's own, which is never stored
