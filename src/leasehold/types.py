"""The types that public methods take and return, for annotations: `from leasehold.types import Page`."""

from leasehold.client.bulk import Bulk
from leasehold.client.group import Group
from leasehold.client.job import Job, Questions
from leasehold.client.mirrors import Mirrors
from leasehold.client.queues import Lanes, Pausable, Queues, Rates, Slots, Tasks
from leasehold.client.run_by_id import RunResult
from leasehold.client.schedules import AppSchedules, Schedules
from leasehold.client.tenants import Tenants
from leasehold.domain.audit import AuditPage, AuditRow
from leasehold.domain.budgets import BudgetLine, BudgetOwner, BudgetPage, BudgetRow, Spending
from leasehold.domain.bulk import BulkOptions, BulkRefusal, BulkReport
from leasehold.domain.checks.numbers import Priority
from leasehold.domain.checks.texts import Names
from leasehold.domain.checks.times import Duration
from leasehold.domain.errors import RunningJob
from leasehold.domain.groups import (
    GroupAttempt,
    GroupError,
    GroupPage,
    GroupResult,
    GroupState,
    GroupStatus,
    GroupStop,
    GroupSummary,
)
from leasehold.domain.hooks import Notification
from leasehold.domain.limits import PauseOptions, Rate, Slot
from leasehold.domain.metrics import Histogram, LeaseAge, Metrics, ReadyAge, Rollup, SlotUse
from leasehold.domain.mirror import Mirror, MirrorOptions, MirrorRow
from leasehold.domain.questions import OpenQuestion, Question
from leasehold.domain.records import (
    AttemptRecord,
    Criteria,
    ExecutionRow,
    Explanation,
    HistoryEntry,
    Hold,
    LaneHolder,
    LeasePage,
    LeaseRow,
    NotRun,
    Page,
    PauseRecord,
    QueueCount,
    QueueRow,
    RateRow,
    Reaped,
    Relative,
    ScheduleRow,
    SlotHolder,
    SlotRow,
    StepRecord,
    Summary,
    TaskCard,
    TenantRow,
    WorkerCard,
    WorkerProblem,
)
from leasehold.domain.retention import Keep, PruneCount, PruneReport
from leasehold.domain.search import SearchPage
from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze, StopRequested
from leasehold.domain.states import Flag, State
from leasehold.domain.stop import StopManner, StopMode, StopOptions, StopReport
from leasehold.domain.stream import LogTail, Progress, Update
from leasehold.domain.tracing import AttemptOutcome, TracedEnding, TracedEnqueue, TracedRun, Tracing
from leasehold.run.complete import SyncTransaction, Transaction
from leasehold.run.context import Context, SyncContext
from leasehold.run.follow_ups import FollowUp
from leasehold.run.middleware import Run
from leasehold.run.questions import Ask
from leasehold.runners.contract import Collected, Output
from leasehold.runners.docker.spec import ContainerSpec, Mount
from leasehold.runners.subprocess import Command
from leasehold.tasks.call import Bindable, Call, Chain, Dag
from leasehold.tasks.schedule import ScheduleOptions
from leasehold.tasks.settings import CallOptions, Retry, TaskOptions
from leasehold.tasks.task import Task
from leasehold.view import Tenant
from leasehold.worker.health import Health
from leasehold.worker.settings import QueueOrder, WorkerOptions
from leasehold.worker.worker import Worker

__all__ = [
    "AppSchedules",
    "Ask",
    "AttemptOutcome",
    "AttemptRecord",
    "AuditPage",
    "AuditRow",
    "Bindable",
    "BudgetLine",
    "BudgetOwner",
    "BudgetPage",
    "BudgetRow",
    "Bulk",
    "BulkOptions",
    "BulkRefusal",
    "BulkReport",
    "Call",
    "CallOptions",
    "Chain",
    "Collected",
    "Command",
    "ContainerSpec",
    "Context",
    "Criteria",
    "Dag",
    "Duration",
    "ExecutionRow",
    "Explanation",
    "Fail",
    "Flag",
    "FollowUp",
    "Group",
    "GroupAttempt",
    "GroupError",
    "GroupPage",
    "GroupResult",
    "GroupState",
    "GroupStatus",
    "GroupStop",
    "GroupSummary",
    "Health",
    "Histogram",
    "HistoryEntry",
    "Hold",
    "Job",
    "Keep",
    "LaneHolder",
    "Lanes",
    "LeaseAge",
    "LeasePage",
    "LeaseRow",
    "LogTail",
    "Metrics",
    "Mirror",
    "MirrorOptions",
    "MirrorRow",
    "Mirrors",
    "Mount",
    "Names",
    "NotRun",
    "Notification",
    "OpenQuestion",
    "Output",
    "Page",
    "Pausable",
    "Pause",
    "PauseOptions",
    "PauseRecord",
    "Priority",
    "Progress",
    "PruneCount",
    "PruneReport",
    "Question",
    "Questions",
    "QueueCount",
    "QueueOrder",
    "QueueRow",
    "Queues",
    "Rate",
    "RateRow",
    "Rates",
    "ReadyAge",
    "Reaped",
    "Relative",
    "Retry",
    "RetryIn",
    "Rollup",
    "Run",
    "RunResult",
    "RunningJob",
    "ScheduleOptions",
    "ScheduleRow",
    "Schedules",
    "SearchPage",
    "Slot",
    "SlotHolder",
    "SlotRow",
    "SlotUse",
    "Slots",
    "Snooze",
    "Spending",
    "State",
    "StepRecord",
    "StopManner",
    "StopMode",
    "StopOptions",
    "StopReport",
    "StopRequested",
    "Summary",
    "SyncContext",
    "SyncTransaction",
    "Task",
    "TaskCard",
    "TaskOptions",
    "Tasks",
    "Tenant",
    "TenantRow",
    "Tenants",
    "TracedEnding",
    "TracedEnqueue",
    "TracedRun",
    "Tracing",
    "Transaction",
    "Update",
    "Worker",
    "WorkerCard",
    "WorkerOptions",
    "WorkerProblem",
]
