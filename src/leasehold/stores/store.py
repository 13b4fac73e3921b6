"""The store: every verb of a job's life over one database."""

from __future__ import annotations

from leasehold.stores.verbs.audit import AuditVerbs
from leasehold.stores.verbs.budgets import BudgetVerbs
from leasehold.stores.verbs.claim import ClaimVerbs
from leasehold.stores.verbs.enlist import EnlistVerbs
from leasehold.stores.verbs.enqueue_once import EnqueueOnceVerbs
from leasehold.stores.verbs.events import EventVerbs
from leasehold.stores.verbs.groups import GroupVerbs
from leasehold.stores.verbs.inspect import InspectVerbs
from leasehold.stores.verbs.long_names import LongNameVerbs
from leasehold.stores.verbs.metrics import MetricVerbs
from leasehold.stores.verbs.mirrors import MirrorVerbs
from leasehold.stores.verbs.operate import OperateVerbs
from leasehold.stores.verbs.prune import PruneVerbs
from leasehold.stores.verbs.recover import RecoverVerbs
from leasehold.stores.verbs.renew import RenewVerbs
from leasehold.stores.verbs.run_now import RunNowVerbs
from leasehold.stores.verbs.schedules import ScheduleVerbs
from leasehold.stores.verbs.search import SearchVerbs
from leasehold.stores.verbs.settle import SettleVerbs
from leasehold.stores.verbs.steps import StepVerbs
from leasehold.stores.verbs.stop import StopVerbs
from leasehold.stores.verbs.tenants import TenantVerbs
from leasehold.stores.verbs.tokens import TokenVerbs
from leasehold.stores.verbs.vitals import VitalVerbs
from leasehold.stores.verbs.webhooks import WebhookVerbs
from leasehold.stores.verbs.workers import WorkerVerbs


class JobStore(
    EnlistVerbs,
    EnqueueOnceVerbs,
    SettleVerbs,
    RunNowVerbs,
    ScheduleVerbs,
    WebhookVerbs,
    StepVerbs,
    EventVerbs,
    ClaimVerbs,
    RecoverVerbs,
    RenewVerbs,
    OperateVerbs,
    StopVerbs,
    GroupVerbs,
    InspectVerbs,
    SearchVerbs,
    LongNameVerbs,
    BudgetVerbs,
    PruneVerbs,
    MirrorVerbs,
    WorkerVerbs,
    VitalVerbs,
    MetricVerbs,
    TenantVerbs,
    TokenVerbs,
    AuditVerbs,
):
    """What is the same on every database. Claim and migrate are each dialect's own."""
