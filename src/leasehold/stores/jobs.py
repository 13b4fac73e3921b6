"""The store: every verb of a job's life over one database."""

from __future__ import annotations

from leasehold.stores.budgets import BudgetVerbs
from leasehold.stores.events import EventVerbs
from leasehold.stores.groups import GroupVerbs
from leasehold.stores.inspection import InspectVerbs
from leasehold.stores.operate import OperateVerbs
from leasehold.stores.prune import PruneVerbs
from leasehold.stores.recover import RecoverVerbs
from leasehold.stores.run_now import RunNowVerbs
from leasehold.stores.settle import SettleVerbs
from leasehold.stores.steps import StepVerbs
from leasehold.stores.stop import StopVerbs
from leasehold.stores.vitals import VitalVerbs
from leasehold.stores.workers import WorkerVerbs


class JobStore(
    SettleVerbs,
    RunNowVerbs,
    StepVerbs,
    EventVerbs,
    RecoverVerbs,
    OperateVerbs,
    StopVerbs,
    GroupVerbs,
    InspectVerbs,
    BudgetVerbs,
    PruneVerbs,
    WorkerVerbs,
    VitalVerbs,
):
    """What is the same on every database. Claim and migrate are each dialect's own."""
