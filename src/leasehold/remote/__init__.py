"""The HTTP API from Python, without the tasks and without the database: `from leasehold.remote import Remote`.
Needs the extra: `pip install 'leasehold[remote]'`.

api = Remote("http://127.0.0.1:8700", token="lh_…")
job = api.enqueue("add", {"a": 1, "b": 2})
job.result(30)
"""

try:
    import httpx2 as _httpx2
except ModuleNotFoundError as _error:  # pragma: no cover
    if _error.name != "httpx2":
        raise
    from leasehold.errors import DriverMissing as _DriverMissing

    raise _DriverMissing("httpx2", "remote") from None
else:
    del _httpx2

from leasehold.remote.bulk import Bulk
from leasehold.remote.bulk_requests import BulkOptions
from leasehold.remote.calls import CallOptions, NewJob
from leasehold.remote.client import Remote
from leasehold.remote.group import Group
from leasehold.remote.job import Job
from leasehold.remote.limits import Rates, Slots
from leasehold.remote.pause_window import PauseOptions
from leasehold.remote.questions import Questions
from leasehold.remote.queues import Lanes, Pausable, Queues, Tasks
from leasehold.remote.schedules import Schedules
from leasehold.remote.stop import StopManner, StopOptions
from leasehold.remote.values import HistoryEntry, Page, Question, ScheduleRow, Summary, TaskCard
from leasehold.remote.view import Tenant

__all__ = [
    "Bulk",
    "BulkOptions",
    "CallOptions",
    "Group",
    "HistoryEntry",
    "Job",
    "Lanes",
    "NewJob",
    "Page",
    "Pausable",
    "PauseOptions",
    "Question",
    "Questions",
    "Queues",
    "Rates",
    "Remote",
    "ScheduleRow",
    "Schedules",
    "Slots",
    "StopManner",
    "StopOptions",
    "Summary",
    "TaskCard",
    "Tasks",
    "Tenant",
]
