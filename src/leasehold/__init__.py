"""Leasehold: long background work that survives crashes, in your own database.

from leasehold import Leasehold

app = Leasehold()

@app.task
def add(a: int, b: int) -> int:
    return a + b

job = add.enqueue(2, 3)
"""

from leasehold.app import VERSION as __version__  # noqa: F401 - under its usual name
from leasehold.app import Leasehold, Task
from leasehold.domain.errors import (
    DatabaseTooOld,
    DatabaseUnreachable,
    DriverMissing,
    DuplicateJob,
    InvalidArguments,
    InvalidInput,
    InvalidTask,
    JobError,
    JobNotFound,
    JobNotSucceeded,
    LeaseholdError,
    LeaseLost,
    Refused,
    SchemaOutdated,
    SchemaTooNew,
    StoreError,
    UnknownTask,
    Unstorable,
    WaitTimedOut,
)
from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze, StopRequested
from leasehold.domain.states import State
from leasehold.engine.context import Context, SyncContext
from leasehold.engine.handle import Job
from leasehold.engine.registry import Retry
from leasehold.engine.worker import Health, Worker

__all__ = [
    "Context",
    "DatabaseTooOld",
    "DatabaseUnreachable",
    "DriverMissing",
    "DuplicateJob",
    "Fail",
    "Health",
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
    "Pause",
    "Refused",
    "Retry",
    "RetryIn",
    "SchemaOutdated",
    "SchemaTooNew",
    "Snooze",
    "State",
    "StopRequested",
    "StoreError",
    "SyncContext",
    "Task",
    "UnknownTask",
    "Unstorable",
    "WaitTimedOut",
    "Worker",
]
