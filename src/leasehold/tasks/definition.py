"""Task definitions: a registered function, its signature and checked settings, and the registry of an app's tasks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Any,
    ClassVar,
    NotRequired,  # pydantic needs its own kind before Python 3.12
    get_type_hints,
)

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import TypedDict

from leasehold.domain.checks.numbers import ALWAYS_FINITE, check_finite
from leasehold.domain.checks.payload import (
    RESULT_IN_DATABASE,
    RESULT_IN_FILE,
    check_text,
    encode,
    is_surely_storable,
)
from leasehold.domain.checks.texts import checked_name
from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import InvalidArguments, InvalidInput, InvalidTask, NotSerializable, UnknownTask
from leasehold.domain.records import TaskCard
from leasehold.domain.schedules import Schedule
from leasehold.tasks.codec import Codec, changed, difference, field_comes_back, unreadable
from leasehold.tasks.external import External, as_async, check_external, check_on_lost
from leasehold.tasks.settings import OF_TASK, TaskSettings, runs_in_child_process


def margin(lease: float) -> float:
    """Return how many seconds before the end of its lease a handler is stopped if the lease cannot be renewed."""
    return max(min(1.0, lease / 4), lease / 6)


class TaskDefinition:
    """A registered function: checks its arguments, and encodes and decodes its result."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        settings: TaskSettings,
        external: External | None = None,
    ) -> None:
        self.function = function
        self.external = external
        """Set if the function returns a command or container, which runs outside the worker."""
        self.inner = function if external is None else as_async(function)
        self.handler = self.inner
        """What an attempt calls: the function, with the app's middleware around it."""
        self.layers: Sequence[Callable[..., Any]] = ()
        """The middleware around the function, for a task that runs in its own process."""
        self.name = checked_name(name or function.__name__, "task")
        """The name of the task, in the database and everywhere else. None: the function's name."""
        is_async = inspect.iscoroutinefunction(function)
        self.in_child_process = runs_in_child_process(settings, function, is_async)
        self.runs_on_loop = external is not None or (is_async and not self.in_child_process)
        """Whether an attempt runs on the worker's event loop: an async function, or an external task, which is watched
        from there. A child process is watched by a thread."""
        hints = read_hints(function, self.name)
        self.context_parameter = context_parameter(function, hints, self.name, is_async)
        self._signature = own_signature(function, self.name, self.context_parameter)
        self._arguments = arguments_type(self.name, self._signature, hints)
        self._doubted = _doubted(self._arguments)
        self._defaults = default_values(self.name, self._signature, hints)
        # An external task returns what to run, not its result.
        returned = hints.get("return", Any) if external is None else Any
        self._result = Codec(returned, f"{self.name}.result")
        self.may_return_none = self._result.takes_none
        if external is not None:
            check_external(self.name, settings, self.context_parameter)
        self.settings = self.check_settings(settings)
        self.retention = self.settings.ages()
        """How long its jobs are kept; empty: the pruner's setting."""
        self.has_rules = self.settings.timeout is not None or self.settings.result == "file"
        """Whether an attempt must check more than its lease before it begins."""
        self._lease_times: dict[float, tuple[float, float]] = {}
        stall_after = self.settings.stall_after
        self.stall_after = None if stall_after is None else seconds(stall_after, "stall_after")

    @functools.cached_property
    def heartbeat(self) -> float:
        """Seconds between two renewals."""
        return self.settings.beat

    @functools.cached_property
    def timeout(self) -> float | None:
        return None if self.settings.timeout is None else seconds(self.settings.timeout, "timeout")

    def lease_times(self, lease: float) -> tuple[float, float]:
        """Return how many seconds of the lease a handler may use without a renewal, and the seconds between
        two renewals. Called once per job, so the result is cached."""
        times = self._lease_times.get(lease)
        if times is None:
            times = self._lease_times[lease] = (lease - margin(lease), min(self.heartbeat, lease / 3))
        return times

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its arguments."""
        return frozenset(self._signature.parameters)

    @functools.cached_property
    def card(self) -> TaskCard:
        """The task as callers see it, described by the first paragraph of the function's docstring."""
        return TaskCard(
            name=self.name,
            queue=self.settings.queue,
            description=(inspect.getdoc(self.function) or "").partition("\n\n")[0],
            arguments=self._arguments.json_schema(mode="validation"),
            result=self._result.schema(),
            tags=self.settings.tags,
            expose=self.settings.expose,
        )

    def stored_name(self, argument: str) -> str:
        """Return the stored name of an argument: its name, or its alias. Raises InvalidInput for an argument with a
        default: if it is left out, nothing is stored."""
        parameter = self._signature.parameters.get(argument)
        if parameter is None:
            known = ", ".join(sorted(self.parameters))
            raise InvalidInput("argument", f"task {self.name!r} has no {argument!r}", f"there are {known}")
        if parameter.default is not parameter.empty:
            raise InvalidInput(
                "argument",
                f"{argument!r} of task {self.name!r} has a default, which is not stored",
                "name one that every call gives",
            )
        return self._key_of(argument)

    def mirrored_argument(self, argument: str | None) -> str | None:
        """The stored name of the argument that identifies a mirror's row; None: the unique key. Raises InvalidInput."""
        if not self.settings.mirror:
            raise InvalidInput(
                "task", f"{self.name!r} does not say mirror=True", "add it: @app.task(mirror=True)"
            )
        if argument is None:
            return None
        if argument in self.settings.sensitive:
            raise InvalidInput(
                "argument", f"{argument!r} is sensitive, and would stand in your table", "use another"
            )
        return self.stored_name(argument)

    def _key_of(self, argument: str) -> str:
        schema: Any = self._arguments.json_schema(mode="serialization")
        names = list(schema.get("properties", {}))
        return argument if argument in names else str(names[list(self._signature.parameters).index(argument)])

    @functools.cached_property
    def sensitive(self) -> tuple[str, ...]:
        """The stored names of its sensitive arguments."""
        return tuple(self._key_of(name) for name in self.settings.sensitive)

    def check_settings(self, settings: TaskSettings) -> TaskSettings:
        check_on_lost(settings.on_lost, self.external)
        return settings.checked(self.name, set(self._signature.parameters))

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Bind positional and keyword arguments as a function call would."""
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise InvalidArguments(self.name, {"arguments": str(error)}) from None

    def encode_arguments(self, arguments: Mapping[str, Any]) -> str:
        """Validate by the annotations, and encode as JSON text. Defaults are left out: they belong to the function, and
        may change with it."""
        checked = self._validated(arguments)
        text = self._dumped(checked)
        return self._returning(checked, text) if self._doubted else text

    def encode_named(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Like `encode_arguments`; also returns the values by parameter name, with defaults, to fill templates with."""
        checked = self._validated(arguments)
        text = self._returning(checked, self._dumped(checked))
        return text, self._defaults | self._plain(checked, by_alias=False, exclude_unset=False)

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        # pydantic refuses lone surrogates as "not text"; this check names the real problem.
        for name, value in arguments.items():
            if isinstance(value, str):
                check_text(value, f"{self.name}.{name}")
        try:
            # The validator itself: the adapter's method only handles options that we do not use, for every job.
            checked: dict[str, Any] = self._arguments.validator.validate_python(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(self.name, _problems(error)) from None
        for name, value in checked.items():
            if type(value) not in ALWAYS_FINITE:
                check_finite(value, f"{self.name}.{name}")
        return checked

    def _returning(self, checked: dict[str, Any], text: str) -> str:
        """Return a text that decodes to the same values: the given one if possible. Raises NotSerializable."""
        if not self._is_doubtful(checked) or (problem := self._lost(checked, text)) is None:
            return text
        # A value that a model generates for an unset field (an id, the time) survives only if it is stored.
        whole = self._dumped(checked, exclude_unset=False)
        if self._lost(checked, whole) is not None:
            raise problem
        return whole

    def _dumped(self, checked: dict[str, Any], exclude_unset: bool = True) -> str:
        """Encode with pydantic's serializer. If that fails or the text looks suspicious, use `encode`, which checks."""
        try:
            dumped = self._arguments.serializer.to_json(checked, by_alias=True, exclude_unset=exclude_unset)
            text = dumped.decode()
        except (ValueError, TypeError):
            text = ""
        if text and is_surely_storable(text):
            return text
        return encode(self._plain(checked, exclude_unset=exclude_unset), self.name)

    def _plain(
        self, checked: dict[str, Any], by_alias: bool = True, exclude_unset: bool = True
    ) -> dict[str, Any]:
        try:
            plain: dict[str, Any] = self._arguments.dump_python(
                checked, mode="json", by_alias=by_alias, exclude_unset=exclude_unset
            )
            return plain
        except (ValueError, TypeError) as error:
            raise NotSerializable(
                self.name, f"has arguments that are not JSON ({error})", "pass JSON values"
            ) from None

    def _is_doubtful(self, checked: Mapping[str, Any]) -> bool:
        """Whether to compare the values with what is read back. A scalar without an annotation is plain JSON."""
        return any(
            name in checked and not (bare and type(checked[name]) in ALWAYS_FINITE)
            for name, bare in self._doubted.items()
        )

    def _lost(self, checked: dict[str, Any], text: str) -> NotSerializable | None:
        """Return the error for a value that would not be read back as it is."""
        try:
            back = self._arguments.validator.validate_json(text)
        except ValidationError as error:
            return unreadable(error, self.name)
        where = difference(checked, back, self.name)
        return None if where is None else changed(where)

    def decode_arguments(self, stored: str) -> dict[str, Any]:
        """Decode the stored arguments as the function takes them, and check them: the function may have changed."""
        try:
            arguments: dict[str, Any] = self._arguments.validator.validate_json(stored)
        except ValidationError as error:
            raise InvalidArguments(self.name, _problems(error)) from None
        return arguments

    def encode_result(self, value: Any, as_file: bool = False) -> str | None:
        """Encode by the return annotation, so that a caller gets back what was returned. With `as_file` the result may
        be larger than the database takes."""
        if value is None and self.may_return_none:
            return None
        return self._result.encode(value, RESULT_IN_FILE if as_file else RESULT_IN_DATABASE)

    def decode_result(self, stored: str | None) -> Any:
        """Decode a result. Raises InvalidInput if the annotation has changed, and the result no longer fits it."""
        return None if stored is None and self.may_return_none else self._result.decode(stored or "null")


def _doubted(arguments: TypeAdapter[Any]) -> dict[str, bool]:
    """Return the parameters whose values may be read back differently. True: the annotation is missing."""
    schema: Any = arguments.core_schema
    while schema["type"] == "definitions":
        schema = schema["schema"]
    fields = schema["fields"].items()
    return {name: field["schema"]["type"] == "any" for name, field in fields if not field_comes_back(field)}


def _problems(error: ValidationError) -> dict[str, str]:
    return {".".join(map(str, item["loc"])) or "arguments": item["msg"] for item in error.errors()}


# -- the tasks of one app ----------------------------------------------------------------------------------------------


class Registry:
    def __init__(self) -> None:
        self.definitions: dict[str, TaskDefinition] = {}
        """A live view: tasks registered later appear too."""
        self.schedules: dict[str, Schedule] = {}
        """Schedules declared in code, by name."""

    def add(
        self,
        function: Callable[..., Any],
        name: str | None,
        settings: Mapping[str, Any],
        external: External | None = None,
    ) -> TaskDefinition:
        unknown = sorted(settings.keys() - OF_TASK)
        if unknown:
            raise InvalidInput(
                unknown[0], "is not a setting of a task", f"known: {', '.join(sorted(OF_TASK))}"
            )
        if external is not None:
            settings = {"on_lost": "adopt", **settings}
        definition = TaskDefinition(function, name, TaskSettings(**settings), external)
        known = self.definitions.get(definition.name)
        if known is not None and _place(known.function) != _place(function):
            raise InvalidInput(
                "task", f"{definition.name!r} is registered already", "give one of them another name"
            )
        self.definitions[definition.name] = definition
        return definition

    def schedule(self, schedule: Schedule) -> None:
        known = self.schedules.get(schedule.name)
        if known is not None and known.task != schedule.task:
            raise InvalidInput(
                "schedule",
                f"{schedule.name!r} is declared already, for task {known.task!r}",
                "give one of them another name",
            )
        self.schedules[schedule.name] = schedule

    def find(self, name: str) -> TaskDefinition:
        """Return the definition. Raises UnknownTask."""
        try:
            return self.definitions[name]
        except KeyError:
            raise UnknownTask(name, list(self.definitions)) from None

    def cards(self) -> list[TaskCard]:
        """Return the cards of all tasks, sorted by name."""
        return [task.card for _, task in sorted(self.definitions.items())]

    def queues(self) -> dict[str, str]:
        """Return the default queue of every task."""
        return {name: task.settings.queue for name, task in self.definitions.items()}


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    """Identify a function: registering the same one again, as a reload of its module does, is no conflict."""
    return function.__module__, function.__qualname__


# -- signatures --------------------------------------------------------------------------------------------------------

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
    """Return the signature of the job, without the context. Raises InvalidTask for a parameter without a fixed name."""
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
