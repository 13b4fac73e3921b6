"""What a task is: its function, its settings, and the check of its arguments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import (
    Any,
    Literal,
    NotRequired,  # pydantic needs its own kind before Python 3.12
    get_args,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import TypedDict

from leasehold.domain.budgets import checked_amounts
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.payload import check_text, encode, is_surely_storable
from leasehold.domain.errors import InvalidArguments, InvalidInput, InvalidTask, Unstorable
from leasehold.domain.job import (
    DEFAULT_LEASE,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    OnDuplicate,
    OnParentFailure,
    UniqueFor,
)
from leasehold.domain.limits import Rate, Slot, checked_slots, default_rate, rate_template
from leasehold.domain.policy import OnBreach, OnFailure, OnLost, Policy
from leasehold.run.context import Context, RunFacts, SyncContext
from leasehold.tasks.cap import check_cap, check_without_queue

OnDrain = Literal["release", "pause"]
OnStall = Literal["report", "pause", "stop"]
Priority = int | Literal["high", "medium", "low"]

CONTEXT_PARAMETER = "ctx"
"""A parameter of this name, or annotated Context or SyncContext, is filled by the worker; it is not an argument."""
LONGEST_NAME = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_ALWAYS_FINITE = frozenset({str, int, bool, type(None)})
_PRIORITIES = {"high": 10, "medium": 0, "low": -10}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failed attempt is tried again: up to `max_attempts` runs that fail, waiting `backoff` seconds, doubled
    each time up to `max_delay`. `backoff=0` retries at once. `on` limits retries to these exceptions, `never`
    excludes some."""

    max_attempts: int = 3
    backoff: Duration = 2.0
    max_delay: Duration = 300.0
    max_crashes: int | None = None
    on: tuple[type[BaseException], ...] = (Exception,)
    never: tuple[type[BaseException], ...] = ()

    def covers(self, error: BaseException) -> bool:
        return isinstance(error, self.on) and not isinstance(error, self.never)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """What a task, or one call of it, may say. The names are the keywords of `@app.task` and `.using()`."""

    queue: str = "default"
    priority: Priority = 0
    lane: str | None = None
    on_failure: OnFailure = "halt"
    retry: Retry = field(default_factory=Retry)
    timeout: Duration | None = None
    """Of one attempt."""
    deadline: Duration | None = None
    """Of the whole job."""
    start_by: Duration | None = None
    """Cancelled if it has not started by then."""
    lease: Duration = DEFAULT_LEASE
    heartbeat: Duration | None = None
    on_lost: OnLost = "retry"
    count_lost: bool = False
    on_drain: OnDrain = "release"
    stall_after: Duration | None = None
    """Told as stalled when nothing is heard of it for this long."""
    budget: Mapping[str, int] | None = None
    """What the job may spend in all its runs, by unit; whole numbers."""
    on_breach: OnBreach = "fail"
    """Over its budget, or its group's: fail, pause, or only a cap that `ctx.left` tells."""
    on_stall: OnStall = "report"
    """And then: nothing more, paused, or stopped as a failure that may be retried."""
    unique: str | None = None
    unique_for: UniqueFor = "live"
    on_duplicate: OnDuplicate = "return"
    tags: tuple[str, ...] = ()
    slots: Mapping[str, int | Slot] | None = None
    """Units that it holds while it runs, by slot."""
    rate: str | Rate | None = None
    """How often such jobs start; a template as `lane` is."""
    cap: int | None = None
    """How many may run at once for `app.run_now` to start another."""
    queueing: bool = True
    """False: it is never enqueued, only run at once; so it runs once, and an interrupted run fails."""

    def checked(self, task: str, arguments: set[str]) -> TaskSettings:
        """The same settings, or an error that names the one that is wrong."""
        checked_name(self.queue, "queue")
        priority_number(self.priority)
        for name in ("lane", "unique"):
            _check_template(task, name, getattr(self, name), arguments)
        _check_template(task, "rate", rate_template(self.rate), arguments)
        default_rate(self.rate)
        checked_slots(self.slots)
        for name, choices in (
            ("on_failure", OnFailure),
            ("on_lost", OnLost),
            ("on_drain", OnDrain),
            ("on_stall", OnStall),
            ("on_breach", OnBreach),
            ("unique_for", UniqueFor),
            ("on_duplicate", OnDuplicate),
        ):
            _check_choice(name, getattr(self, name), choices)
        for name in ("timeout", "deadline", "start_by", "stall_after"):
            if getattr(self, name) is not None:
                seconds(getattr(self, name), name, positive=True)
        lease = seconds(self.lease, "lease", positive=True)
        beat = lease / 3 if self.heartbeat is None else seconds(self.heartbeat, "heartbeat", positive=True)
        if beat > lease / 3 + 1e-9:
            raise InvalidTask(
                "heartbeat",
                f"{beat:g} s is more than a third of the {lease:g} s lease",
                "one missed beat must not cost the lease: lengthen the lease or shorten the heartbeat",
            )
        tags: object = self.tags
        if isinstance(tags, str):
            raise InvalidTask("tags", f"{self.tags!r} is text", "give a tuple of texts")
        for tag in self.tags:
            checked_name(tag, "tags")
        check_cap(self.cap)
        self.policy()
        check_without_queue(self, explicit_retry=self.retry != Retry())
        return self

    def policy(self) -> Policy:
        """What travels with the job."""
        retry = self.retry
        if not isinstance(retry, Retry):
            raise InvalidTask("retry", f"{retry!r} is not a Retry", "use retry=Retry(max_attempts=…)")
        if retry.max_attempts < 1:
            raise InvalidTask("retry.max_attempts", f"{retry.max_attempts} is too few", "give 1 or more")
        if retry.max_crashes is not None and retry.max_crashes < 1:
            raise InvalidTask("retry.max_crashes", f"{retry.max_crashes} is too few", "give 1 or more")
        return Policy(
            queueing=self.queueing,
            max_attempts=retry.max_attempts if self.queueing else 1,
            max_crashes=retry.max_crashes,
            backoff=seconds(retry.backoff, "retry.backoff"),
            max_delay=seconds(retry.max_delay, "retry.max_delay"),
            on_lost=self.on_lost if self.queueing else "fail",
            count_lost=self.count_lost,
            on_failure=self.on_failure,
            on_breach=self.on_breach,
            budget=None if self.budget is None else checked_amounts(self.budget, "budget"),
        )

    def changed(self, changes: Mapping[str, Any]) -> TaskSettings:
        return replace(self, **changes)


class _Options(TypedDict, total=False):
    """What a task and a call may both say."""

    queue: str
    priority: Priority
    lane: str | None
    retry: Retry
    timeout: Duration | None
    deadline: Duration | None
    start_by: Duration | None
    lease: Duration
    heartbeat: Duration | None
    on_lost: OnLost
    count_lost: bool
    on_drain: OnDrain
    budget: Mapping[str, int] | None
    on_breach: OnBreach
    stall_after: Duration | None
    on_stall: OnStall
    unique: str | None
    unique_for: UniqueFor
    on_duplicate: OnDuplicate
    tags: tuple[str, ...]
    slots: Mapping[str, int | Slot] | None
    rate: str | Rate | None
    cap: int | None


class TaskOptions(_Options, total=False):
    """The keywords of `@app.task`, for editors and type checkers; `TaskSettings` says what they mean."""

    on_failure: OnFailure
    queueing: bool


class CallOptions(_Options, total=False):
    """The keywords of `.using()`. Its `on_failure` speaks of the job itself in its lane (halt, skip), or of the jobs
    it waits for (cancel, run)."""

    on_failure: OnFailure | OnParentFailure
    after: Iterable[Any]
    now: bool
    key: str | None
    delay: Duration
    at: datetime | None
    hold: bool
    group: str | None
    trace: str | None


def margin(lease: float) -> float:
    """How long before its lease runs out a handler that could not renew it is stopped."""
    return max(min(1.0, lease / 4), lease / 6)


class TaskDefinition:
    """A registered function: how its arguments are checked, and how its result comes back."""

    def __init__(self, function: Callable[..., Any], name: str | None, settings: TaskSettings) -> None:
        self.function = function
        self.name = checked_name(name or function.__name__, "task")
        self.is_async = inspect.iscoroutinefunction(function)
        hints = _hints(function, self.name)
        self.context_parameter = _context_parameter(function, hints, self.name, self.is_async)
        self._signature = _own_signature(function, self.name, self.context_parameter)
        self._arguments = _arguments_type(self.name, self._signature, hints)
        self._result: TypeAdapter[Any] | None = (
            TypeAdapter(hints["return"]) if hints.get("return", Any) is not Any else None
        )
        self.settings = self.check_settings(settings)
        self._lease_times: dict[float, tuple[float, float]] = {}
        stall_after = self.settings.stall_after
        self.stall_after = None if stall_after is None else seconds(stall_after, "stall_after")

    @functools.cached_property
    def heartbeat(self) -> float:
        """Seconds between two renewals."""
        lease = seconds(self.settings.lease, "lease")
        return lease / 3 if self.settings.heartbeat is None else seconds(self.settings.heartbeat, "heartbeat")

    @functools.cached_property
    def timeout(self) -> float | None:
        return None if self.settings.timeout is None else seconds(self.settings.timeout, "timeout")

    def lease_times(self, lease: float) -> tuple[float, float]:
        """For a lease of so many seconds: how many of them a handler may use without a renewal, and the seconds
        between two renewals. Asked once a job, so remembered."""
        times = self._lease_times.get(lease)
        if times is None:
            times = self._lease_times[lease] = (lease - margin(lease), min(self.heartbeat, lease / 3))
        return times

    def check_settings(self, settings: TaskSettings) -> TaskSettings:
        return settings.checked(self.name, set(self._signature.parameters))

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Positional and keyword arguments as a function call would take them."""
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise InvalidArguments(self.name, {"arguments": str(error)}) from None

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON values, after the annotations have had their say. Defaults stay out: they are the
        function's, and may change with it."""
        return self._plain(self._validated(arguments))

    def encode_arguments(self, arguments: Mapping[str, Any]) -> str:
        """As `check`, and then as JSON text; in one go where nothing is suspicious about it."""
        checked = self._validated(arguments)
        try:
            text = self._arguments.dump_json(checked, by_alias=True, exclude_unset=True).decode()
        except (ValueError, TypeError):
            text = ""
        return text if text and is_surely_storable(text) else encode(self._plain(checked), self.name)

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        # pydantic refuses lone surrogates as "not text"; we say what is wrong with them instead.
        for name, value in arguments.items():
            if isinstance(value, str):
                check_text(value, f"{self.name}.{name}")
        try:
            checked = self._arguments.validate_python(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(self.name, _problems(error)) from None
        for name, value in checked.items():
            if type(value) not in _ALWAYS_FINITE:
                check_finite(value, f"{self.name}.{name}")
        return checked

    def _plain(self, checked: dict[str, Any]) -> dict[str, Any]:
        try:
            plain: dict[str, Any] = self._arguments.dump_python(
                checked, mode="json", by_alias=True, exclude_unset=True
            )
            return plain
        except (ValueError, TypeError) as error:
            raise Unstorable(
                self.name, f"has arguments that are not JSON ({error})", "pass JSON values"
            ) from None

    def call_arguments(self, stored: str, context: RunFacts) -> dict[str, Any]:
        """The stored arguments as the function wants them, checked again: it may have changed since."""
        try:
            arguments = self._arguments.validate_json(stored)
        except ValidationError as error:
            raise InvalidArguments(self.name, _problems(error)) from None
        if self.context_parameter is not None:
            arguments[self.context_parameter] = context
        return arguments

    def encode_result(self, value: Any) -> str | None:
        """Through the return annotation, so that what is stored is what a caller gets back."""
        if value is None:
            return None
        if self._result is not None:
            check_finite(value, f"{self.name}.result")
            value = self._result.dump_python(value, mode="json")
        return encode(value, f"{self.name}.result")

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments together with the defaults of those that were left out."""
        given = self._signature.parameters.values()
        return {p.name: p.default for p in given if p.default is not p.empty} | dict(arguments)

    def decode_result(self, result: Any) -> Any:
        return result if self._result is None else self._result.validate_python(result)


def priority_number(priority: Priority) -> int:
    number = _PRIORITIES.get(priority) if isinstance(priority, str) else priority
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInput(
            "priority", f"{priority!r} is not a priority", 'use −100 to 100, "high", "medium" or "low"'
        )
    if not LOWEST_PRIORITY <= number <= HIGHEST_PRIORITY:
        raise InvalidInput("priority", f"{number} is out of range", "use −100 (last) to 100 (first)")
    return number


def checked_name(name: object, field: str) -> str:
    """Queues, tasks, lanes, keys, groups and tags: short text that every store can keep."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(field, f"{name!r} is not a name", "give a text that is not empty")
    if len(name) > LONGEST_NAME:
        raise InvalidInput(field, f"has {len(name)} characters", f"use at most {LONGEST_NAME}")
    check_text(name, field)
    if field in ("task", "queue") and not _NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r} is not a {field} name", "use letters, digits and _ . : -")
    return name


def checked_on_parent_failure(choice: OnParentFailure) -> OnParentFailure:
    known = get_args(OnParentFailure)
    if choice not in known:
        raise InvalidInput("on_failure", f"{choice!r} is not known", "use " + " or ".join(map(repr, known)))
    return choice


def fill_template(template: str, arguments: Mapping[str, Any], field: str) -> str:
    """A lane or key for these arguments."""
    return checked_name(template.format_map(arguments), field)


def _check_template(task: str, field: str, template: str | None, arguments: set[str]) -> None:
    if template is None:
        return
    try:
        parts = list(string.Formatter().parse(template))
    except (ValueError, TypeError) as error:
        raise InvalidTask(
            field, f"{template!r} is not a template ({error})", "write {argument} or plain text"
        ) from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if name not in arguments or spec or conversion:
            listed = ", ".join(sorted(arguments)) or "none"
            raise InvalidTask(
                field, f"{template!r} names {name!r}", f"task {task!r} has these arguments: {listed}"
            )


def _check_choice(name: str, value: object, choices: Any) -> None:
    known = get_args(choices)
    if value not in known:
        raise InvalidTask(name, f"{value!r} is not known", "use " + " or ".join(map(repr, known)))


def _context_parameter(
    function: Callable[..., Any], hints: Mapping[str, Any], task: str, is_async: bool
) -> str | None:
    """Which parameter takes the context; its colour must be the function's."""
    for name in inspect.signature(function).parameters:
        hint = hints.get(name)
        if hint in (Context, SyncContext):
            wanted = Context if is_async else SyncContext
            if hint is not wanted:
                kind = "an async" if is_async else "a plain"
                raise InvalidTask(name, f"task {task!r} is {kind} function", f"annotate it {wanted.__name__}")
            return name
        if name == CONTEXT_PARAMETER and name not in hints:
            return name
    return None


def _own_signature(function: Callable[..., Any], task: str, context: str | None) -> inspect.Signature:
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


def _hints(function: Callable[..., Any], task: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidTask(
            "annotations",
            f"task {task!r} has an annotation that cannot be read ({error})",
            "import it at run time",
        ) from None


def _arguments_type(
    task: str, signature: inspect.Signature, hints: Mapping[str, Any]
) -> TypeAdapter[dict[str, Any]]:
    """A typed dict and not a model: an argument may be called `json` or `copy` without meeting a method."""
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        hint = hints.get(name, Any)
        fields[name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    arguments = TypedDict(task, fields)  # type: ignore[misc]
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        return adapter
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        problem = f"task {task!r} cannot be checked ({error})"
        raise InvalidTask("annotations", problem, "use types that pydantic knows") from None


def check_finite(value: Any, field: str) -> None:
    """Serializers turn NaN and infinities into null without a word, so they are looked for before."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unstorable(field, f"is {value}, which JSON cannot express", "use None or a finite number")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            check_finite(item, f"{field}.{name}")
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            check_finite(item, f"{field}[{index}]")
    elif isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        for name, item in vars(value).items() if hasattr(value, "__dict__") else ():
            check_finite(item, f"{field}.{name}")


def _problems(error: ValidationError) -> dict[str, str]:
    return {".".join(map(str, item["loc"])) or "arguments": item["msg"] for item in error.errors()}
