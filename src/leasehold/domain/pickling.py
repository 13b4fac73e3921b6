"""Base class that makes our exceptions survive pickling."""

from __future__ import annotations

from typing import Any


class Portable(BaseException):
    """An exception that unpickles as it was. By default Python rebuilds an exception from its message, which does not
    fit these constructors: unpickling would fail, and a process pool would wait for its result for ever."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuilt, (type(self), self.args, vars(self))


def rebuilt(kind: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(facts)
    return error
