"""Leasehold: long background work that survives crashes, in your own database.

from leasehold import Leasehold

app = Leasehold()

@app.task
def add(a: int, b: int) -> int:
    return a + b

job = add.enqueue(2, 3)

The other errors are in `leasehold.errors`, the values for annotations in `leasehold.types`.
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

# Names are looked up when they are used: `leasehold --help` needs none of what stands behind them. The lightest first.
_DOORS = ("leasehold.errors", "leasehold.types", "leasehold.app")


def __getattr__(name: str) -> object:
    for door in _DOORS if name in __all__ else ():
        module = _import_module(door)
        if hasattr(module, name):
            found: object = getattr(module, name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'leasehold' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
