"""Everything that the public methods take and return, for annotations: `from leasehold.types import Page`."""

from leasehold.client.bulk import Bulk
from leasehold.client.group import Group
from leasehold.client.job import Job
from leasehold.client.limits import Rates, Slots
from leasehold.client.mirrors import Mirrors
from leasehold.client.questions import Questions
from leasehold.client.queues import Kinds, Lanes, Pausable, Queues
from leasehold.client.run_by_id import Ran
from leasehold.client.schedules import Schedules
from leasehold.client.tenants import Tenants
from leasehold.domain.audit import AuditPage, AuditRow
from leasehold.domain.budgets import BudgetLine, BudgetOwner, BudgetPage, BudgetRow, Spending
from leasehold.domain.bulk import BulkOptions, BulkRefusal, BulkReport, BulkVerb
from leasehold.domain.by_id import NotRun
from leasehold.domain.capacity import Holder
from leasehold.domain.checks.durations import Duration
from leasehold.domain.checks.names import Names
from leasehold.domain.checks.numbers import Priority
from leasehold.domain.closing import ClosingOptions
from leasehold.domain.explanation import Explanation, Hold
from leasehold.domain.groups import (
    GroupError,
    GroupPage,
    GroupResult,
    GroupRun,
    GroupState,
    GroupStatus,
    GroupStop,
    GroupSummary,
)
from leasehold.domain.hooks import HookEvent
from leasehold.domain.job import Question
from leasehold.domain.kinds import KindCard
from leasehold.domain.leases import LeasePage, LeaseRow
from leasehold.domain.limits import Rate, Slot
from leasehold.domain.metrics import Histogram, LeaseAge, Metrics, ReadyAge, Rollup, SlotUse
from leasehold.domain.mirror import Mirror, MirrorOptions, MirrorRow
from leasehold.domain.retention import Keep, PruneCount, PruneReport
from leasehold.domain.search import Found
from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze, StopRequested
from leasehold.domain.states import Flag, State
from leasehold.domain.stop import StopManner, StopMode, StopOptions, StopReport
from leasehold.domain.stream import Event, LogTail, Progress
from leasehold.domain.tracing import AttemptOutcome, TracedEnding, TracedEnqueue, TracedRun, Tracing
from leasehold.domain.views import (
    AttemptRecord,
    Criteria,
    ExecutionRow,
    HistoryEntry,
    LaneHolder,
    OpenQuestion,
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
    TenantRow,
    WorkerCard,
)
from leasehold.run.asking import Ask
from leasehold.run.complete import SyncTransaction, Transaction
from leasehold.run.context import Context, SyncContext
from leasehold.run.follow_ups import FollowUp
from leasehold.run.middleware import Run
from leasehold.runners.contract import Collected, Output
from leasehold.runners.docker.spec import ContainerSpec, Mount
from leasehold.runners.subprocess import Command
from leasehold.tasks.call import Bindable, Call
from leasehold.tasks.flows import Chain, Dag
from leasehold.tasks.options import CallOptions, TaskOptions
from leasehold.tasks.schedule import When
from leasehold.tasks.settings import Retry
from leasehold.tasks.task import Task
from leasehold.view import Tenant
from leasehold.worker.health import Health
from leasehold.worker.options import WorkerOptions
from leasehold.worker.settings import QueueOrder
from leasehold.worker.worker import Worker

__all__ = [
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
    "BulkVerb",
    "Call",
    "CallOptions",
    "Chain",
    "ClosingOptions",
    "Collected",
    "Command",
    "ContainerSpec",
    "Context",
    "Criteria",
    "Dag",
    "Duration",
    "Event",
    "ExecutionRow",
    "Explanation",
    "Fail",
    "Flag",
    "FollowUp",
    "Found",
    "Group",
    "GroupError",
    "GroupPage",
    "GroupResult",
    "GroupRun",
    "GroupState",
    "GroupStatus",
    "GroupStop",
    "GroupSummary",
    "Health",
    "Histogram",
    "HistoryEntry",
    "Hold",
    "Holder",
    "HookEvent",
    "Job",
    "Keep",
    "KindCard",
    "Kinds",
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
    "OpenQuestion",
    "Output",
    "Page",
    "Pausable",
    "Pause",
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
    "Ran",
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
    "ScheduleRow",
    "Schedules",
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
    "TaskOptions",
    "Tenant",
    "TenantRow",
    "Tenants",
    "TracedEnding",
    "TracedEnqueue",
    "TracedRun",
    "Tracing",
    "Transaction",
    "When",
    "Worker",
    "WorkerCard",
    "WorkerOptions",
]
