"""What a worker may be told."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import EllipsisType

from leasehold.domain.audit import KEPT_FOR
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.names import EVERY_TENANT, checked_tenant
from leasehold.domain.errors import InvalidInput
from leasehold.domain.retention import Ages, ages_of

GRACE_VARIABLE = "SHUTDOWN_GRACE_PERIOD_SECONDS"
DEFAULT_GRACE = 300.0


def grace_in_seconds(grace: Duration | EllipsisType | None) -> float | None:
    """As given; else what the environment says, where 'none' waits for running jobs; else five minutes."""
    if not isinstance(grace, EllipsisType):
        return None if grace is None else seconds(grace, "grace")
    told = os.environ.get(GRACE_VARIABLE, "").strip()
    if told.lower() == "none":
        return None
    return seconds(told, GRACE_VARIABLE) if told else DEFAULT_GRACE


def new_owner() -> str:
    """A name that no other start of any worker has: host, process and chance."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    queues: tuple[str, ...] = ("default",)
    strict: bool = False
    """Serve the queues in the order given instead of in turn."""
    concurrency: int = 20
    """Async jobs at once."""
    threads: int = 8
    """Plain functions at once."""
    executions: int = 50
    """Commands and containers at once. To watch one takes neither a thread nor a place on the loop."""
    grace: float | None = DEFAULT_GRACE
    """Seconds that running jobs get when the worker drains; None: until they end."""
    stop_grace: float = 10.0
    """Seconds a handler gets to obey a stop before it is abandoned."""
    poll: float = 1.0
    sweep: float = 5.0
    retention: Ages = field(default_factory=lambda: ages_of("7d", "retention"))
    """Age in seconds at which finished jobs are pruned, by state; None: never. What a task says itself comes first."""
    audit_retention: float | None = seconds(KEPT_FOR, "audit_retention")
    """Age in seconds at which what the audit tells is pruned; None: never."""
    prunes: bool = True
    """Whether it prunes at all."""
    listen_url: str | None = None
    drain_on_sigterm: bool = True
    """Inside another program: claim nothing more once that program is told to end."""
    burst: bool = False
    """End when there is nothing left to do."""
    capture_logs: bool = True
    """What handlers log with `logging` is kept in their jobs' log tails too."""
    claims: bool = True
    """False: it takes nothing from queues, and runs what it is handed."""
    tenants: tuple[str, ...] = ()
    """Whose jobs, instead of the app's own; "all" for everybody's, the app's own included."""
    health_file: str | Path | None = None
    """Touched while the worker is well, and removed while it is not."""
    owner: str = field(default_factory=new_owner)

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 0), ("threads", 0), ("executions", 0)):
            if getattr(self, name) < least:
                raise InvalidInput(name, f"{getattr(self, name)} is too small", f"give {least} or more")
        if self.concurrency + self.threads + self.executions == 0:
            raise InvalidInput(
                "concurrency", "the worker could run nothing", "give concurrency, threads or executions"
            )
        if not self.queues and self.claims:
            raise InvalidInput("queues", "no queue to serve", "name at least one")
        if EVERY_TENANT in self.tenants:
            if len(self.tenants) > 1:
                raise InvalidInput("tenants", "'all' says it all", "name no others beside it")
        else:
            for name in self.tenants:
                checked_tenant(name)
        if self.health_file is not None and not Path(self.health_file).absolute().parent.is_dir():
            raise InvalidInput("health_file", f"{self.health_file} has no folder", "make the folder first")


def split_names(text: str | Sequence[str]) -> tuple[str, ...]:
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(part.strip() for part in parts if part.strip())
