"""A registered task: how its arguments are checked, and how its result comes back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from leasehold.domain.checks.durations import seconds
from leasehold.domain.checks.names import checked_name
from leasehold.domain.checks.numbers import check_finite
from leasehold.domain.checks.payload import check_text, encode, is_surely_storable
from leasehold.domain.errors import InvalidArguments, Unstorable
from leasehold.tasks.settings import TaskSettings
from leasehold.tasks.signature import arguments_type, context_parameter, own_signature, read_hints

_ALWAYS_FINITE = frozenset({str, int, bool, type(None)})


def margin(lease: float) -> float:
    """How long before its lease runs out a handler that could not renew it is stopped."""
    return max(min(1.0, lease / 4), lease / 6)


class TaskDefinition:
    """A registered function: how its arguments are checked, and how its result comes back."""

    def __init__(self, function: Callable[..., Any], name: str | None, settings: TaskSettings) -> None:
        self.function = function
        self.handler = function
        """What a run calls: the function, with the app's middleware around it."""
        self.name = checked_name(name or function.__name__, "task")
        self.is_async = inspect.iscoroutinefunction(function)
        hints = read_hints(function, self.name)
        self.context_parameter = context_parameter(function, hints, self.name, self.is_async)
        self._signature = own_signature(function, self.name, self.context_parameter)
        self._arguments = arguments_type(self.name, self._signature, hints)
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

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its arguments."""
        return frozenset(self._signature.parameters)

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

    def decode_arguments(self, stored: str) -> dict[str, Any]:
        """The stored arguments as the function wants them, checked again: it may have changed since."""
        try:
            # The adapter's own validator: its method only sorts out options that we do not use, for every job.
            arguments: dict[str, Any] = self._arguments.validator.validate_json(stored)
        except ValidationError as error:
            raise InvalidArguments(self.name, _problems(error)) from None
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


def _problems(error: ValidationError) -> dict[str, str]:
    return {".".join(map(str, item["loc"])) or "arguments": item["msg"] for item in error.errors()}
