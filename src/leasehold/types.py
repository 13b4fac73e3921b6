"""Everything that the public methods take and give back, for annotations: `from leasehold.types import Page`."""

from leasehold.client.group import Group
from leasehold.client.job import Job
from leasehold.client.limits import Rates, Slots
from leasehold.client.questions import Questions
from leasehold.client.queues import Lanes, Pausable
from leasehold.client.run_by_id import Ran
from leasehold.client.schedules import Schedules
from leasehold.domain.budgets import BudgetLine, Spending
from leasehold.domain.by_id import NotRun
from leasehold.domain.capacity import Holder
from leasehold.domain.checks.durations import Duration
from leasehold.domain.checks.names import Names
from leasehold.domain.checks.numbers import Priority
from leasehold.domain.closing import ClosingOptions
from leasehold.domain.groups import GroupError, GroupResult, GroupRun, GroupStatus, GroupStop
from leasehold.domain.job import Question
from leasehold.domain.limits import Rate, Slot
from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze, StopRequested
from leasehold.domain.states import State
from leasehold.domain.stop import StopManner, StopMode, StopOptions, StopReport
from leasehold.domain.stream import Event, LogTail, Progress
from leasehold.domain.views import (
    AttemptRecord,
    Criteria,
    Explanation,
    HistoryEntry,
    Hold,
    LaneHolder,
    OpenQuestion,
    Page,
    PauseRecord,
    RateRow,
    Reaped,
    Relative,
    ScheduleRow,
    SlotHolder,
    SlotRow,
    StepRecord,
    Summary,
)
from leasehold.run.asking import Ask
from leasehold.run.complete import SyncTransaction, Transaction
from leasehold.run.context import Context, SyncContext
from leasehold.run.follow_ups import FollowUp
from leasehold.run.middleware import Run
from leasehold.tasks.call import Bindable, Call
from leasehold.tasks.flows import Chain, Dag
from leasehold.tasks.schedule import When
from leasehold.tasks.settings import CallOptions, Retry, TaskOptions
from leasehold.tasks.task import Task
from leasehold.worker.hooks import HookEvent
from leasehold.worker.worker import Health, Worker

__all__ = [
    "Ask",
    "AttemptRecord",
    "Bindable",
    "BudgetLine",
    "Call",
    "CallOptions",
    "Chain",
    "ClosingOptions",
    "Context",
    "Criteria",
    "Dag",
    "Duration",
    "Event",
    "Explanation",
    "Fail",
    "FollowUp",
    "Group",
    "GroupError",
    "GroupResult",
    "GroupRun",
    "GroupStatus",
    "GroupStop",
    "Health",
    "HistoryEntry",
    "Hold",
    "Holder",
    "HookEvent",
    "Job",
    "LaneHolder",
    "Lanes",
    "LogTail",
    "Names",
    "NotRun",
    "OpenQuestion",
    "Page",
    "Pausable",
    "Pause",
    "PauseRecord",
    "Priority",
    "Progress",
    "Question",
    "Questions",
    "Ran",
    "Rate",
    "RateRow",
    "Rates",
    "Reaped",
    "Relative",
    "Retry",
    "RetryIn",
    "Run",
    "ScheduleRow",
    "Schedules",
    "Slot",
    "SlotHolder",
    "SlotRow",
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
    "Transaction",
    "When",
    "Worker",
]
