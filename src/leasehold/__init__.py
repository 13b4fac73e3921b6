"""Leasehold: long background work that survives crashes, in your own database.

from leasehold import Leasehold

app = Leasehold()

@app.task
def add(a: int, b: int) -> int:
    return a + b

job = add.enqueue(2, 3)
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.client.group import Group
    from leasehold.client.job import Job
    from leasehold.domain.budgets import BudgetLine, Spending
    from leasehold.domain.errors import (
        AcquireTimedOut,
        AtCapacity,
        DatabaseTooOld,
        DatabaseUnreachable,
        DependencyCycle,
        DriverMissing,
        DuplicateJob,
        DuplicateStep,
        GroupOnHold,
        InvalidAnswer,
        InvalidArguments,
        InvalidInput,
        InvalidTask,
        JobError,
        JobNotFound,
        JobNotSucceeded,
        LeaseholdError,
        LeaseLost,
        OverBudget,
        QuestionExpired,
        Refused,
        SchemaOutdated,
        SchemaTooNew,
        StoreError,
        StreamFull,
        TransactionTooLong,
        UnknownTask,
        Unstorable,
        WaitTimedOut,
    )
    from leasehold.domain.groups import GroupStatus
    from leasehold.domain.job import Question
    from leasehold.domain.limits import Rate, Slot
    from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze, StopRequested
    from leasehold.domain.states import State
    from leasehold.domain.stop import StopReport
    from leasehold.domain.stream import Event, LogTail, Progress
    from leasehold.domain.views import OpenQuestion
    from leasehold.run.context import Context, SyncContext
    from leasehold.run.follow_ups import FollowUp
    from leasehold.tasks.call import Bound
    from leasehold.tasks.flows import Chain, Dag
    from leasehold.tasks.settings import Retry
    from leasehold.tasks.task import Task
    from leasehold.worker.hooks import HookEvent
    from leasehold.worker.worker import Health, Worker

__version__ = "0.1.0"

# Names are looked up when they are used: `leasehold --help` needs none of what stands behind them.
_HOMES = {
    "leasehold.app": ("Leasehold",),
    "leasehold.domain.budgets": (
        "BudgetLine",
        "Spending",
    ),
    "leasehold.domain.errors": (
        "AcquireTimedOut",
        "AtCapacity",
        "DatabaseTooOld",
        "DatabaseUnreachable",
        "DependencyCycle",
        "DriverMissing",
        "DuplicateJob",
        "DuplicateStep",
        "InvalidAnswer",
        "GroupOnHold",
        "InvalidArguments",
        "InvalidInput",
        "InvalidTask",
        "JobError",
        "JobNotFound",
        "JobNotSucceeded",
        "LeaseLost",
        "LeaseholdError",
        "OverBudget",
        "QuestionExpired",
        "Refused",
        "SchemaOutdated",
        "SchemaTooNew",
        "StoreError",
        "StreamFull",
        "TransactionTooLong",
        "UnknownTask",
        "Unstorable",
        "WaitTimedOut",
    ),
    "leasehold.domain.stream": (
        "Event",
        "LogTail",
        "Progress",
    ),
    "leasehold.domain.limits": (
        "Rate",
        "Slot",
    ),
    "leasehold.domain.job": ("Question",),
    "leasehold.domain.groups": ("GroupStatus",),
    "leasehold.domain.signals": (
        "Fail",
        "Pause",
        "RetryIn",
        "Snooze",
        "StopRequested",
    ),
    "leasehold.domain.states": ("State",),
    "leasehold.domain.stop": ("StopReport",),
    "leasehold.tasks.call": ("Bound",),
    "leasehold.run.context": (
        "Context",
        "SyncContext",
    ),
    "leasehold.tasks.flows": (
        "Chain",
        "Dag",
    ),
    "leasehold.run.follow_ups": ("FollowUp",),
    "leasehold.client.group": ("Group",),
    "leasehold.client.job": ("Job",),
    "leasehold.worker.hooks": ("HookEvent",),
    "leasehold.tasks.settings": ("Retry",),
    "leasehold.tasks.task": ("Task",),
    "leasehold.worker.worker": (
        "Health",
        "Worker",
    ),
    "leasehold.domain.views": ("OpenQuestion",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    found: object = getattr(_import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AcquireTimedOut",
    "AtCapacity",
    "Bound",
    "BudgetLine",
    "Chain",
    "Context",
    "Dag",
    "DatabaseTooOld",
    "DatabaseUnreachable",
    "DependencyCycle",
    "DriverMissing",
    "DuplicateJob",
    "DuplicateStep",
    "Event",
    "Fail",
    "FollowUp",
    "Group",
    "GroupOnHold",
    "GroupStatus",
    "Health",
    "HookEvent",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidInput",
    "InvalidTask",
    "Job",
    "JobError",
    "JobNotFound",
    "JobNotSucceeded",
    "LeaseLost",
    "Leasehold",
    "LeaseholdError",
    "LogTail",
    "OpenQuestion",
    "OverBudget",
    "Pause",
    "Progress",
    "Question",
    "QuestionExpired",
    "Rate",
    "Refused",
    "Retry",
    "RetryIn",
    "SchemaOutdated",
    "SchemaTooNew",
    "Slot",
    "Snooze",
    "Spending",
    "State",
    "StopReport",
    "StopRequested",
    "StoreError",
    "StreamFull",
    "SyncContext",
    "Task",
    "TransactionTooLong",
    "UnknownTask",
    "Unstorable",
    "WaitTimedOut",
    "Worker",
]
