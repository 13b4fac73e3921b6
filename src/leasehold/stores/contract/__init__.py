"""What a store promises. The docstrings are the promises; tests/contract holds every store to them.

A store is synchronous and safe to use from several threads. Every verb is one short transaction: it has happened
wholly when the call returns, or not at all when it raises.
"""

from __future__ import annotations

from typing import Protocol

from leasehold.stores.contract.audit import Audit
from leasehold.stores.contract.control import Groups, Limits, Operate, Stop
from leasehold.stores.contract.handler import Budgets, Questions, Steps, Stream, Transaction
from leasehold.stores.contract.hooks import Hooks, Webhooks
from leasehold.stores.contract.life import Claim, Enqueue, Recover, Renew, Settle
from leasehold.stores.contract.metrics import Counts
from leasehold.stores.contract.mirrors import Mirrors
from leasehold.stores.contract.schedules import Schedules
from leasehold.stores.contract.tenants import Tell, Tenants
from leasehold.stores.contract.tokens import Tokens
from leasehold.stores.contract.upkeep import Inspect, Prune, Results, Schema, Vitals, Workers
from leasehold.stores.contract.wakeups import Hint, Wakeups

__all__ = ["Hint", "Store", "Transaction", "Wakeups"]


class Store(
    Enqueue,
    Claim,
    Renew,
    Settle,
    Recover,
    Steps,
    Budgets,
    Stream,
    Questions,
    Operate,
    Limits,
    Stop,
    Groups,
    Schedules,
    Mirrors,
    Hooks,
    Webhooks,
    Inspect,
    Prune,
    Results,
    Workers,
    Vitals,
    Counts,
    Schema,
    Tenants,
    Tokens,
    Audit,
    Protocol,
):
    """The whole contract. Who needs only a stage of it may ask for that stage alone."""

    def another(self) -> Store:
        """The same store over a connection of its own: what must not wait behind others, such as renewals."""
        ...

    def open_tenant(self, name: str, tell: Tell) -> Store:
        """Its store, over the connections of this one where a database can share them. Whoever opens it closes it.
        `tell` takes the place of its own `wake` and `tell_holders`. Nothing is looked at: it may be missing or old."""
        ...
