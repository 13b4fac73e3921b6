"""What our exceptions have in common: they survive the way to another process."""

from __future__ import annotations

from typing import Any


class Portable(BaseException):
    """Comes out of another process as it was. By default an exception is made anew from its message, which is not what
    these classes are made from: unpickling would fail, and a pool of processes would wait for its result for ever."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_was, (type(self), self.args, vars(self))


def _as_it_was(kind: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(facts)
    return error
