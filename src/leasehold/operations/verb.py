"""A verb is one function: its name in the audit, its scope, its HTTP line, its checks and its help, said once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic.fields import FieldInfo

from leasehold.domain.bulk import ARGUMENTS, MEANT_FOR, BulkArguments
from leasehold.domain.states import State
from leasehold.domain.tokens import TokenScope

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

P = ParamSpec("P")
R = TypeVar("R")

Guard = Literal["job", "queue", "all queues", "rows"]
"""What a token for some queues may do. The verb's target is a job, or a queue, of these; the verb is about all queues,
so such a token is refused; or the rows of other queues are left out of the answer."""

Notify = Callable[["JobStore", Any], None]
Rules = Callable[["Backend", Mapping[str, Any]], object]
Detail = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class KnownTask(Protocol):
    """A task whose code this process has."""

    def encode_arguments(self, arguments: Mapping[str, Any], /) -> str: ...


@dataclass(frozen=True)
class Backend:
    """What a verb may use: the store, and the tasks that this process knows (none, in a bare command)."""

    store: JobStore
    find_task: Callable[[str], KnownTask | None] = lambda name: None


@dataclass(frozen=True)
class Check:
    """In `Annotated`: the domain's own check of a value, which returns a value of the same type. It is called with the
    value and the name of the parameter."""

    run: Callable[[Any, str], Any]


class Hidden:
    """In `Annotated`: the audit records that the argument was given, never its value."""


class Internal:
    """In `Annotated`: no caller sends the argument, a surface knows it or the verb makes it."""


@dataclass(frozen=True)
class Param:
    """A parameter of a verb, as surfaces need it."""

    name: str
    annotation: Any
    default: Any
    marks: tuple[Any, ...]

    @property
    def public(self) -> str:
        """`for_` is `for` wherever Python's keywords do not matter."""
        return self.name.rstrip("_")

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def check(self) -> Check | None:
        return next((mark for mark in self.marks if isinstance(mark, Check)), None)

    @property
    def hidden(self) -> bool:
        return Hidden in self.marks

    @property
    def internal(self) -> bool:
        return Internal in self.marks

    @property
    def info(self) -> FieldInfo | None:
        """Limits and help; of a type that may be None, those of the type itself."""
        plain = get_args(self.annotation)[0] if self.marks else self.annotation
        inner = [mark for one in get_args(plain) if get_origin(one) is Annotated for mark in one.__metadata__]
        return next((mark for mark in (*self.marks, *inner) if isinstance(mark, FieldInfo)), None)


@dataclass(frozen=True, eq=False)
class Verb(Generic[P, R]):
    """What an operator may do or read. Surfaces derive routes, commands and their texts from it."""

    function: Callable[Concatenate[Backend, P], R]
    name: str
    """In the audit: `job.cancel`."""
    scope: TokenScope
    guard: Guard
    http: str = ""
    """Method and path; empty: it cannot be called over HTTP."""
    write: bool = True
    status: int = 200
    after: Notify | None = None
    rules: Rules | None = None
    audit: Detail | None = None
    bulk: tuple[State, ...] = ()
    destructive: bool = False
    title: str = ""
    """The name of its route: `cancel_job`."""
    examples: Mapping[str, Any] | None = None

    @property
    def method(self) -> str:
        return self.http.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.http.partition(" ")[2]

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def noun(self) -> str:
        """The file that the verb stands in."""
        return self.function.__module__.rpartition(".")[2]

    @cached_property
    def returns(self) -> Any:
        return get_type_hints(self.function, include_extras=True)["return"]

    @cached_property
    def signature(self) -> inspect.Signature:
        """Without the backend."""
        whole = inspect.signature(self.function)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    @cached_property
    def params(self) -> tuple[Param, ...]:
        hints = get_type_hints(self.function, include_extras=True)
        found = []
        for one in self.signature.parameters.values():
            hint = hints[one.name]
            marks = hint.__metadata__ if get_origin(hint) is Annotated else ()
            found.append(Param(one.name, hint, one.default, marks))
        return tuple(found)

    @cached_property
    def target(self) -> Param | None:
        """What the verb is about: its first parameter, if the verb changes something or the path names one."""
        first = next((one for one in self.params if not one.internal), None)
        return first if self.write or "{" in self.path else None

    @cached_property
    def body(self) -> tuple[Param, ...]:
        """What a caller sends besides the target."""
        return tuple(one for one in self.params if one is not self.target and not one.internal)

    def path_for(self, target: str) -> str:
        return re.sub(r"\{[^}]*\}", lambda _: target, self.path)

    def checked(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Arguments by name, each checked by itself."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        for one in self.params:
            if (check := one.check) is not None:
                given[one.name] = check.run(given[one.name], one.public)
        return given

    def check(self, name: str, value: object) -> None:
        """One argument by itself."""
        found = next(one for one in self.params if one.name == name)
        if found.check is not None:
            found.check.run(value, found.public)

    def run(self, backend: Backend, given: Mapping[str, Any]) -> R:
        """With what `checked` returned."""
        return cast(Callable[..., R], self.function)(backend, **given)

    def detail(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the audit keeps of the arguments."""
        if self.audit is not None:
            return self.audit(given)
        kept = {one.name: given[one.name] for one in self.body if not one.hidden}
        hidden = {f"new_{one.name}": given[one.name] is not None for one in self.body if one.hidden}
        return kept | hidden


INTERNAL = ("actor", "new_id")
"""Names of arguments that are marked so: the marks are read later than the table is made."""
VERBS: list[Verb[..., Any]] = []
"""Every verb and read, in the order of the files."""


def verb(
    name: str,
    *,
    scope: TokenScope,
    guard: Guard,
    http: str = "",
    status: int = 200,
    after: Notify | None = None,
    rules: Rules | None = None,
    audit: Detail | None = None,
    bulk: tuple[State, ...] = (),
    destructive: bool = False,
    title: str = "",
    examples: Mapping[str, Any] | None = None,
) -> Callable[[Callable[Concatenate[Backend, P], R]], Verb[P, R]]:
    """Put a function that changes something into the table. `rules` are checks of several arguments together: they run
    before the audit, which records what the store refuses and no typing errors. `audit` says what the audit keeps of
    the arguments (all, unless given), `after` who is notified, `bulk` which states a bulk call without states means."""

    def add(function: Callable[Concatenate[Backend, P], R]) -> Verb[P, R]:
        return _add(
            Verb(
                function,
                name,
                scope,
                guard,
                http,
                status=status,
                after=after,
                rules=rules,
                audit=audit,
                bulk=bulk,
                destructive=destructive,
                title=title or _title(name),
                examples=examples,
            )
        )

    return add


def read(
    name: str, *, scope: TokenScope = "read", guard: Guard, http: str = "", title: str = ""
) -> Callable[[Callable[Concatenate[Backend, P], R]], Verb[P, R]]:
    """Put a function that only reads into the table."""

    def add(function: Callable[Concatenate[Backend, P], R]) -> Verb[P, R]:
        return _add(Verb(function, name, scope, guard, http, write=False, title=title or _title(name)))

    return add


def _add(made: Verb[P, R]) -> Verb[P, R]:
    VERBS.append(made)
    if made.bulk:
        word = made.name.partition(".")[2]
        MEANT_FOR[word] = made.bulk
        empty = inspect.Parameter.empty
        own = [one for one in list(made.signature.parameters.values())[1:] if one.name not in INTERNAL]
        ARGUMENTS[word] = BulkArguments({one.name: one.default is empty for one in own}, made.check)
    return made


def _title(name: str) -> str:
    """`job.cancel` is `cancel_job`."""
    noun, _, what = name.partition(".")
    return f"{what}_{noun}"
