"""`@frozen`: the same as `@dataclass(frozen=True, slots=True)`, built in a quarter of the time; and marks
that say how a field appears in JSON.

The standard library compiles six methods for each such class (since Python 3.13 at least in one go). We have two
hundred of these classes, which took a third of the time of `import leasehold`, for every command and worker. Here one
method is compiled, and the others are plain functions (docs/decisions/0049).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")
_set = object.__setattr__


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def frozen(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class whose instances never change, and are equal if their fields are equal."""
    return _made(cls, kw_only) if cls is not None else lambda cls: _made(cls, kw_only)


def _made(cls: type[Any], kw_only: bool) -> type[Any]:
    own = set(vars(cls))
    if cls.__doc__ is None:
        cls.__doc__ = ""  # otherwise dataclass builds a docstring, which takes as long as all the rest
    cls = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    methods = {
        "__init__": _init_of(cls),
        "__repr__": _repr,
        **_comparison_of(cls),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__getstate__": _state,
        "__setstate__": _restore,
    }
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _init_of(cls: type[Any]) -> Callable[..., None]:
    # Dunder names: no field has such a name.
    names: dict[str, Any] = {"__set__": _set, "__missing__": MISSING}
    positional, by_name, body = ["self"], ["*"], []
    for one in fields(cls):
        default, parameter, found = f"__default_{one.name}__", one.name, one.name
        if one.default is not MISSING:
            names[default] = one.default
            parameter += f"={default}"
            found = one.name if one.init else default
        elif one.default_factory is not MISSING:
            names[default] = one.default_factory
            parameter += "=__missing__"
            found = (
                f"{default}() if {one.name} is __missing__ else {one.name}" if one.init else f"{default}()"
            )
        if one.init:
            (by_name if one.kw_only else positional).append(parameter)
        if one.init or default in names:
            body.append(f" __set__(self, {one.name!r}, {found})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    head = ", ".join(positional + (by_name if by_name[1:] else []))
    made: dict[str, Any] = {}
    exec("\n".join([f"def __init__({head}):", *(body or [" pass"])]), names, made)
    init: Callable[..., None] = made["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {one.name: one.type for one in fields(cls) if one.init} | {"return": None}
    return init


def _comparison_of(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    compared = [one.name for one in fields(cls) if one.compare]
    values: Callable[[Any], Any] = attrgetter(*compared) if compared else lambda _: ()

    def __eq__(self: Any, other: object) -> bool:
        return bool(values(self) == values(other)) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"{type(self).__qualname__}.{name} never changes")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for one, found in zip(fields(self), state, strict=True):
        _set(self, one.name, found)


# -- how a field looks in JSON -----------------------------------------------------------------------------------------

if TYPE_CHECKING:
    shown = property
else:

    class shown(property):
        """A property that the record's JSON contains beside its fields."""


FROM_JSON = {"from_json": True}
"""The pydantic context for reading a record from its JSON."""


class Encoded:
    """Marks a text field that holds JSON: the record's JSON contains its decoded value, of this type."""

    def __init__(self, kind: Any = Any) -> None:
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # late: the domain is imported where nothing is validated

        return core_schema.with_info_before_validator_function(_encode, handler(source))


class Private:
    """Marks a field that the record's JSON leaves out. A record that is read from JSON has `instead` there."""

    def __init__(self, instead: Any = None) -> None:
        self.instead = instead

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_default_schema(handler(source), default=self.instead)


EncodedObject = Annotated[str, Encoded(dict[str, Any])]
EncodedJson = Annotated[str | None, Encoded()]


def _encode(value: object, info: Any) -> object:
    """Encode the value if the record is read from its JSON: our own processes send the text itself."""
    return json.dumps(value) if value is not None and info.context == FROM_JSON else value
