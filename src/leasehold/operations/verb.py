"""Verbs: each is one function with its audit name, scope, HTTP line, checks, help and notification.

Surfaces derive routes, commands and help from verbs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType, UnionType
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
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic.fields import FieldInfo

from leasehold.domain.bulk import ARGUMENTS, BULK_STATES, BulkArguments
from leasehold.domain.job import Job
from leasehold.domain.states import State
from leasehold.domain.tokens import TokenScope

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

P = ParamSpec("P")
R = TypeVar("R")

Guard = Literal["job", "queue", "all queues", "rows"]
"""What a token for some queues may do. "job" and "queue": the verb's target must be in these queues. "all queues": the
verb refuses such a token. "rows": the response leaves out rows of other queues."""

Notify = Callable[["JobStore", Any], None]
Rules = Callable[["Backend", Mapping[str, Any]], object]
Detail = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class KnownTask(Protocol):
    """A task whose code this process has."""

    def encode_arguments(self, arguments: Mapping[str, Any], /) -> str: ...


@dataclass(frozen=True)
class Backend:
    """What a verb may use: the store, and the tasks that this process knows (a command without an app knows none)."""

    store: JobStore
    find_task: Callable[[str], KnownTask | None] = lambda name: None


@dataclass(frozen=True)
class Check:
    """In `Annotated`: a check by the domain. `run` gets the value and the name of the parameter, and returns a value
    of the same type."""

    run: Callable[[Any, str], Any]


class Hidden:
    """In `Annotated`: the audit records that the argument was given, never its value."""


class Internal:
    """In `Annotated`: callers do not send the argument; the surface fills it in, or the verb makes it."""


@dataclass(frozen=True)
class Param:
    """A parameter of a verb, for surfaces."""

    name: str
    annotation: Any
    default: Any
    marks: tuple[Any, ...]

    @property
    def public(self) -> str:
        """The name outside of Python: `for_` is `for`."""
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
    def kind(self) -> Any:
        """The type without its marks and without None; for a duration (a number or text), text."""
        return _kind(self.annotation)

    @property
    def info(self) -> FieldInfo | None:
        """The parameter's limits and help; for `T | None`, those of `T`."""
        plain = get_args(self.annotation)[0] if self.marks else self.annotation
        inner = [mark for one in get_args(plain) if get_origin(one) is Annotated for mark in one.__metadata__]
        return next((mark for mark in (*self.marks, *inner) if isinstance(mark, FieldInfo)), None)


@dataclass(frozen=True, eq=False)
class Verb(Generic[P, R]):
    """A verb or read of an operator. Surfaces derive routes, commands and texts from it."""

    function: Callable[Concatenate[Backend, P], R]
    name: str
    """The name in the audit: `job.cancel`."""
    scope: TokenScope
    guard: Guard
    http: str = ""
    """Method and path. Empty: the HTTP API does not have the verb."""
    write: bool = True
    status: int = 200
    after: Notify | None = None
    rules: Rules | None = None
    audit: Detail | None = None
    bulk: tuple[State, ...] = ()
    destructive: bool = False
    title: str = ""
    """The name of the route: `cancel_job`."""
    examples: Mapping[str, Any] | None = None

    @property
    def method(self) -> str:
        return self.http.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.http.partition(" ")[2]

    @property
    def word(self) -> str:
        """The name without its noun: `cancel`."""
        return self.name.partition(".")[2]

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def noun(self) -> str:
        """The verb's noun: the name of its module."""
        return self.function.__module__.rpartition(".")[2]

    @cached_property
    def returns(self) -> Any:
        return get_type_hints(self.function, include_extras=True)["return"]

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature without the backend."""
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
        """The parameter that names what the verb acts on: the first one, if the verb changes something or its path has
        a name."""
        first = next((one for one in self.params if not one.internal), None)
        return first if self.write or "{" in self.path else None

    @cached_property
    def body(self) -> tuple[Param, ...]:
        """The other parameters that a caller sends."""
        return tuple(one for one in self.params if one is not self.target and not one.internal)

    @cached_property
    def bulk_body(self) -> tuple[Param, ...]:
        """Of the body, what a bulk call passes to each job: not hidden arguments, which seldom fit more than one."""
        return tuple(one for one in self.body if not one.hidden)

    def checked(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments by name, each checked by itself."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        for one in self.params:
            if (check := one.check) is not None:
                given[one.name] = check.run(given[one.name], one.public)
        return given

    def check(self, name: str, value: object) -> None:
        """Check one argument by itself."""
        found = next(one for one in self.params if one.name == name)
        if found.check is not None:
            found.check.run(value, found.public)

    def run(self, backend: Backend, given: Mapping[str, Any]) -> R:
        """Call the function with the arguments that `checked` returned."""
        return cast(Callable[..., R], self.function)(backend, **given)

    def detail(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the audit keeps of the arguments."""
        if self.audit is not None:
            return self.audit(given)
        kept = {one.name: given[one.name] for one in self.body if not one.hidden}
        hidden = {f"new_{one.name}": given[one.name] is not None for one in self.body if one.hidden}
        return kept | hidden


VERBS: list[Verb[..., Any]] = []
"""Every verb and read, in the order in which their modules are imported."""


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
    """Add a function that changes something to the table `VERBS`. `rules` check several arguments together,
    before the audit: the audit records what the store refuses, not typing errors. `audit` returns what the audit keeps
    of the arguments (by default all), `after` notifies, `bulk` names the states of a bulk call that gives none."""

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
    """Add a read, a function that changes nothing, to the table `VERBS`."""

    def add(function: Callable[Concatenate[Backend, P], R]) -> Verb[P, R]:
        return _add(Verb(function, name, scope, guard, http, write=False, title=title or _title(name)))

    return add


def _add(made: Verb[P, R]) -> Verb[P, R]:
    VERBS.append(made)
    if made.bulk:
        BULK_STATES[made.word] = made.bulk
        ARGUMENTS[made.word] = BulkArguments({one.name: one.required for one in made.bulk_body}, made.check)
    return made


def _kind(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return _kind(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return _kind([one for one in get_args(hint) if one is not NoneType][-1])
    return hint


def _title(name: str) -> str:
    """Turn `job.cancel` into `cancel_job`."""
    noun, _, what = name.partition(".")
    return f"{what}_{noun}"


# -- notifications -----------------------------------------------------------------------------------------------------


def notify_workers(store: JobStore, answer: object) -> None:
    """Notify workers: a job or a lane may have become free."""
    store.notify_workers()
    _notify_watchers_of(store, answer)


def notify_stop(store: JobStore, job: Job) -> None:
    """Notify the lease holders in every process if the job was flagged to stop. Otherwise it has ended or was parked:
    notify workers, because its lane may be free."""
    if job.stop_requested is None:
        store.notify_workers()
    else:
        store.notify_holders()
    _notify_watchers_of(store, job)


def notify_watchers(store: JobStore, answer: object) -> None:
    store.notify_watchers()


def notify_hooks(store: JobStore, answer: object) -> None:
    store.notify_hooks()


def _notify_watchers_of(store: JobStore, answer: object) -> None:
    """Notify watchers of groups, if the job has a group."""
    if getattr(answer, "group", None) is not None:
        store.notify_watchers()
