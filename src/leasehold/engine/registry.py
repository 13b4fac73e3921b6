"""What a task is: its function, its settings, and the check of its arguments."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from leasehold.domain.durations import Duration, seconds
from leasehold.domain.errors import InvalidArguments, InvalidInput, InvalidTask, Unstorable
from leasehold.domain.job import DEFAULT_LEASE, HIGHEST_PRIORITY, LOWEST_PRIORITY, OnDuplicate, UniqueFor
from leasehold.domain.payload import check_text
from leasehold.domain.retry import OnFailure, OnLost, Policy

Priority = int | Literal["high", "medium", "low"]

CONTEXT_PARAMETER = "ctx"
"""A parameter of this name is filled by the worker; it is not an argument of the job."""
LONGEST_NAME = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
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
    deadline: Duration | None = None
    start_by: Duration | None = None
    lease: Duration = DEFAULT_LEASE
    heartbeat: Duration | None = None
    on_lost: OnLost = "retry"
    count_lost: bool = False
    unique: str | None = None
    unique_for: UniqueFor = "live"
    on_duplicate: OnDuplicate = "return"
    tags: tuple[str, ...] = ()

    def checked(self, task: str, arguments: set[str]) -> TaskSettings:
        """The same settings, or an error that names the one that is wrong."""
        checked_name(self.queue, "queue")
        priority_number(self.priority)
        for name in ("lane", "unique"):
            _check_template(task, name, getattr(self, name), arguments)
        for name, choices in (
            ("on_failure", OnFailure),
            ("on_lost", OnLost),
            ("unique_for", UniqueFor),
            ("on_duplicate", OnDuplicate),
        ):
            _check_choice(name, getattr(self, name), choices)
        for name in ("deadline", "start_by"):
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
        self.policy()
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
            max_attempts=retry.max_attempts,
            max_crashes=retry.max_crashes,
            backoff=seconds(retry.backoff, "retry.backoff"),
            max_delay=seconds(retry.max_delay, "retry.max_delay"),
            on_lost=self.on_lost,
            count_lost=self.count_lost,
            on_failure=self.on_failure,
        )

    def changed(self, changes: Mapping[str, Any]) -> TaskSettings:
        return replace(self, **changes)


class TaskOptions(TypedDict, total=False):
    """The keywords of `@app.task`, for editors and type checkers; `TaskSettings` says what they mean."""

    queue: str
    priority: Priority
    lane: str | None
    on_failure: OnFailure
    retry: Retry
    deadline: Duration | None
    start_by: Duration | None
    lease: Duration
    heartbeat: Duration | None
    on_lost: OnLost
    count_lost: bool
    unique: str | None
    unique_for: UniqueFor
    on_duplicate: OnDuplicate
    tags: tuple[str, ...]


class CallOptions(TaskOptions, total=False):
    """The keywords of `.using()`."""

    delay: Duration
    at: datetime | None
    hold: bool
    group: str | None
    trace: str | None


class TaskDefinition:
    """A registered function: how its arguments are checked, and how its result comes back."""

    def __init__(self, function: Callable[..., Any], name: str | None, settings: TaskSettings) -> None:
        self.function = function
        self.name = checked_name(name or function.__name__, "task")
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = _own_signature(function, self.name)
        hints = _hints(function, self.name)
        self._model = _arguments_model(self.name, self._signature, hints)
        self._result: TypeAdapter[Any] | None = (
            TypeAdapter(hints["return"]) if hints.get("return", Any) is not Any else None
        )
        self.settings = self.check_settings(settings)

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
        # pydantic refuses lone surrogates as "not text"; we say what is wrong with them instead.
        for name, value in arguments.items():
            if isinstance(value, str):
                check_text(value, f"{self.name}.{name}")
        try:
            checked = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(self.name, _problems(error)) from None
        try:
            return checked.model_dump(mode="json", by_alias=True, exclude_unset=True)
        except (ValueError, TypeError) as error:
            raise Unstorable(
                self.name, f"has arguments that are not JSON ({error})", "pass JSON values"
            ) from None

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


def _own_signature(function: Callable[..., Any], task: str) -> inspect.Signature:
    """The signature of the job: without the context, and only with parameters that have names."""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidTask(
                parameter.name,
                f"task {task!r} takes it without a fixed name",
                "name every argument of a task",
            )
    kept = [p for p in signature.parameters.values() if p.name != CONTEXT_PARAMETER]
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


def _arguments_model(task: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints.get(name, Any), default)
    config = ConfigDict(extra="forbid", ser_json_inf_nan="constants", protected_namespaces=())
    try:
        model: type[BaseModel] = create_model(task, __config__=config, **fields)
        return model
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise InvalidTask(
            "annotations", f"task {task!r} cannot be checked ({error})", "use types pydantic knows"
        ) from None


def _problems(error: ValidationError) -> dict[str, str]:
    return {".".join(map(str, item["loc"])) or "arguments": item["msg"] for item in error.errors()}
