"""Leasehold: long background work that survives crashes, in your own database.

from leasehold import Leasehold

app = Leasehold()

@app.task
def add(a: int, b: int) -> int:
    return a + b

job = add.enqueue(2, 3)
"""

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
from leasehold.domain.states import State
from leasehold.engine.handle import Job
from leasehold.engine.registry import Retry

__version__ = "0.1.0"

__all__ = [
    "DatabaseTooOld",
    "DatabaseUnreachable",
    "DriverMissing",
    "DuplicateJob",
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
    "Refused",
    "Retry",
    "SchemaOutdated",
    "SchemaTooNew",
    "State",
    "StoreError",
    "Task",
    "UnknownTask",
    "Unstorable",
    "WaitTimedOut",
]
