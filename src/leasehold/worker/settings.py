"""The settings of a worker, and the typed keywords of `app.worker` that give them."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from types import EllipsisType
from typing import Literal, TypedDict, get_args

from leasehold.domain.audit import KEPT_FOR
from leasehold.domain.checks.texts import EVERY_TENANT, checked_tenant
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.retention import Ages, Keep, retention_by_state
from leasehold.domain.tracing import Tracing

GRACE_VARIABLE = "SHUTDOWN_GRACE_PERIOD_SECONDS"
"""How long running jobs get to end when a worker drains or an app is closed, if it sets no `shutdown_grace`;
`none` waits for them, and 300 seconds is the default."""
DEFAULT_GRACE = 300.0

QueueOrder = Literal["turns", "strict"]


def grace_in_seconds(grace: Duration | EllipsisType | None) -> float | None:
    """Return the given grace; else the environment's, where 'none' waits for running jobs; else five minutes."""
    if not isinstance(grace, EllipsisType):
        return None if grace is None else seconds(grace, "shutdown_grace")
    value = os.environ.get(GRACE_VARIABLE, "").strip()
    if value.lower() == "none":
        return None
    return seconds(value, GRACE_VARIABLE) if value else DEFAULT_GRACE


def new_worker_name() -> str:
    """Return a name that no other start of any worker has: host, process and a random part."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(6)}"


@frozen(kw_only=True)
class WorkerSettings:
    queues: tuple[str, ...] = ("default",)
    """The queues to serve, as names or as text with commas."""
    queue_order: QueueOrder = "turns"
    """"turns" gives each queue its share; "strict" empties the first queue before the second one."""
    concurrency: int = 20
    """How many async jobs run at once."""
    threads: int = 8
    """How many plain functions run at once."""
    max_executions: int = 50
    """How many commands and containers run at once. Watching one takes neither a thread nor a place on the
    event loop."""
    shutdown_grace: float | None = DEFAULT_GRACE
    """How long running jobs get to end when the worker drains. None: as long as they need. Left out:
    SHUTDOWN_GRACE_PERIOD_SECONDS, else 300 seconds."""
    stop_grace: float = 10.0
    """Seconds that a handler gets to obey a stop before the worker leaves it behind."""
    poll: float = 1.0
    """Seconds between two polls for work when no wake-up comes."""
    sweep: float = 5.0
    """Seconds between two checks for lost leases and expired jobs."""
    retention: Ages = field(default_factory=lambda: retention_by_state("7d", "retention"))
    """How old finished jobs are when they are pruned, for all states or by state; None: never. A task's own
    `retention` comes first."""
    audit_retention: float | None = seconds(KEPT_FOR, "audit_retention")
    """How old entries of the audit log are when they are pruned; None: never."""
    prunes: bool = True
    """Whether this worker prunes at all."""
    listen_url: str | None = None
    """A direct connection for wake-ups, when the app's URL leads through a pooler. None: the app's `listen_url`."""
    drain_on_sigterm: bool = True
    """Inside another program: claim nothing more after that program gets SIGTERM. As the program, with `run()`: drain,
    unless the program handles SIGTERM."""
    burst: bool = False
    """End when there is nothing left to do."""
    capture_logs: bool = True
    """Whether what handlers log with `logging` is also kept in their jobs' log tails."""
    claims: bool = True
    """False: the worker claims nothing from queues, and runs only jobs that the program gives it."""
    tenants: tuple[str, ...] = ()
    """The tenants to serve instead of the app's own store; "all": every tenant, and the app's own."""
    health_file: str | Path | None = None
    """A file that is touched while the worker is healthy, and removed while it is not."""
    tracing: Tracing | None = None
    """Gets a call for every attempt. None: what `app.instrument` has set."""
    name: str = field(default_factory=new_worker_name)
    """The name on its leases; no other worker may have it. By default host, process and a random part."""

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 0), ("threads", 0), ("max_executions", 0)):
            if getattr(self, name) < least:
                raise InvalidInput(name, f"{getattr(self, name)} is too small", f"give {least} or more")
        if self.concurrency + self.threads + self.max_executions == 0:
            raise InvalidInput(
                "concurrency", "the worker could run nothing", "give concurrency, threads or max_executions"
            )
        if self.queue_order not in get_args(QueueOrder):
            raise InvalidInput("queue_order", f"{self.queue_order!r} is no order", "use 'turns' or 'strict'")
        if not self.queues and self.claims:
            raise InvalidInput("queues", "no queue to serve", "name at least one")
        if EVERY_TENANT in self.tenants:
            if len(self.tenants) > 1:
                raise InvalidInput("tenants", "'all' includes every tenant", "name no others with it")
        else:
            for name in self.tenants:
                checked_tenant(name)
        if self.health_file is not None and not Path(self.health_file).absolute().parent.is_dir():
            raise InvalidInput("health_file", f"{self.health_file} has no folder", "make the folder first")


def split_names(text: str | Sequence[str]) -> tuple[str, ...]:
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(part.strip() for part in parts if part.strip())


# -- typed keywords ----------------------------------------------------------------------------------------------------


class WorkerDetails(TypedDict, total=False):
    """The settings of `app.worker` that are seldom needed."""

    stop_grace: float
    poll: float
    sweep: float
    prunes: bool
    capture_logs: bool
    claims: bool
    health_file: str | Path | None
    tracing: Tracing | None
    name: str


class WorkerOptions(WorkerDetails, total=False):
    """The settings of `app.worker` and `worker_lifespan`, as typed keywords."""

    queues: str | Iterable[str]
    queue_order: QueueOrder
    concurrency: int
    threads: int
    max_executions: int
    shutdown_grace: Duration | EllipsisType | None
    drain_on_sigterm: bool
    retention: Keep
    audit_retention: Duration | None
    burst: bool
    listen_url: str | None
    tenants: str | Iterable[str]
