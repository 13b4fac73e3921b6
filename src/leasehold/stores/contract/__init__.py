"""What a store promises. The docstrings are the promises; tests/contract holds every store to them.

A store is synchronous and safe to use from several threads. Every verb is one short transaction: it has happened
wholly when the call returns, or not at all when it raises.
"""

from __future__ import annotations

from typing import Protocol

from leasehold.stores.contract.control import Groups, Limits, Operate, Stop
from leasehold.stores.contract.handler import Budgets, Questions, Steps, Stream, Transaction
from leasehold.stores.contract.life import Claim, Enqueue, Recover, Renew, Settle
from leasehold.stores.contract.schedules import Schedules
from leasehold.stores.contract.upkeep import Inspect, Prune, Schema, Vitals, Workers
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
    Inspect,
    Prune,
    Workers,
    Vitals,
    Schema,
    Protocol,
):
    """The whole contract. Who needs only a stage of it may ask for that stage alone."""

    def another(self) -> Store:
        """The same store over a connection of its own: what must not wait behind others, such as renewals."""
        ...
