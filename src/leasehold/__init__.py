"""Leasehold: long background work that survives crashes, in your own database.

from leasehold import Leasehold

app = Leasehold()

@app.task
def add(a: int, b: int) -> int:
    return a + b

job = add.enqueue(2, 3)

All errors are in `leasehold.errors`, all types for annotations in `leasehold.types`.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.errors import AtCapacity, LeaseholdError, LeaseLost
    from leasehold.types import (
        Context,
        Fail,
        Group,
        Job,
        Pause,
        Rate,
        Retry,
        RetryIn,
        Slot,
        Snooze,
        State,
        StopRequested,
        SyncContext,
        Task,
        Update,
        Worker,
    )

__version__ = "0.1.0"

__all__ = [
    "AtCapacity",
    "Context",
    "Fail",
    "Group",
    "Job",
    "LeaseLost",
    "Leasehold",
    "LeaseholdError",
    "Pause",
    "Rate",
    "Retry",
    "RetryIn",
    "Slot",
    "Snooze",
    "State",
    "StopRequested",
    "SyncContext",
    "Task",
    "Update",
    "Worker",
]

# A name is imported at its first use: `leasehold --help` needs none of them. The module that loads fastest comes first.
_MODULES = ("leasehold.errors", "leasehold.types", "leasehold.app")


def __getattr__(name: str) -> object:
    for path in _MODULES if name in __all__ else ():
        module = _import_module(path)
        if hasattr(module, name):
            found: object = getattr(module, name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'leasehold' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
