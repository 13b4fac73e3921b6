"""Who: the token that a request brings, and what it may do by it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, cast

from leasehold.app import Leasehold
from leasehold.domain.checks.names import EVERY_TENANT
from leasehold.domain.errors import JobNotFound, TenantNotFound
from leasehold.domain.explanation import Cause, Hold
from leasehold.domain.frozen import frozen
from leasehold.domain.records import WorkerCard
from leasehold.domain.tokens import SCOPES, Access, TokenScope
from leasehold.operations.operations import Operations
from leasehold.operations.verb import Verb
from leasehold.surfaces.guard.denied import Denied
from leasehold.types import Job, Tenant

TENANT_HEADER = "Leasehold-Tenant"
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
"""Headers of a request that a proxy has passed on."""
LOCAL = Access(name="local", scopes=SCOPES, tenants=("*",))
"""Whoever is on this machine, where no token is asked for."""


class _InQueue(Protocol):
    @property
    def queue(self) -> str | None: ...


Row = TypeVar("Row", bound=_InQueue)
T = TypeVar("T")


@frozen
class Caller:
    """Who asks, and about whose jobs."""

    app: Leasehold
    access: Access
    tenant: str | None
    surface: str = "http"

    @property
    def view(self) -> Leasehold | Tenant:
        return self.app if self.tenant is None else self.app.tenant(self.tenant)

    @property
    def operations(self) -> Operations:
        return self.view.__internals__.operations

    @property
    def actor(self) -> str:
        """Who stands in the history."""
        return f"{self.surface}:{self.access.name}"[:200]

    def job(self, job_id: str) -> Job[object]:
        """One that the caller may know of. Raises JobNotFound, for others as for those that do not exist."""
        job = self.view.get(job_id)
        if not self.access.may_use_queue(job.queue):
            raise JobNotFound(job_id)
        return job

    def visible_rows(self, rows: Iterable[Row]) -> list[Row]:
        """Those of the queues that the caller may know of. What is of no queue is of all of them."""
        if not self.access.queues:
            return list(rows)
        return [row for row in rows if row.queue is not None and self.access.may_use_queue(row.queue)]

    def visible(self, answer: T) -> T:
        """An answer, of a list or page without the rows of other queues."""
        if not self.access.queues:
            return answer
        if isinstance(answer, list):
            return cast(T, self.visible_rows(answer) if answer and hasattr(answer[0], "queue") else answer)
        if hasattr(answer, "next") and is_dataclass(answer) and not isinstance(answer, type):
            rows = {one.name: getattr(answer, one.name) for one in fields(answer)}
            return replace(
                answer, **{name: self.visible(row) for name, row in rows.items() if isinstance(row, list)}
            )
        return answer

    def check(self, verb: Verb[..., Any], target: str | None) -> None:
        """What a token for some queues may do with a verb. Raises Denied, and JobNotFound for jobs of other queues."""
        match verb.guard:
            case "job":
                self.job(str(target))
            case "queue":
                self.check_queue(str(target))
            case "all queues":
                self.check_all_queues()
            case "rows":
                pass

    def explain(self, job_id: str) -> list[Hold]:
        """Why it does not run. What stands in its way may be of any queue: who may know of some only is not told which
        jobs these are, nor what went wrong in them."""
        holds = self.operations.explain(self.job(job_id).id)
        return [_without_others(hold) for hold in holds] if self.access.queues else holds

    def workers(self) -> list[WorkerCard]:
        """Who works for the tenant. Whom else they work for is told as far as the caller may know of it."""
        cards = self.operations.list_workers()
        return [replace(card, tenants=tuple(filter(self._may_know, card.tenants))) for card in cards]

    def _may_know(self, tenant: str) -> bool:
        return tenant == EVERY_TENANT or self.access.may_use_tenant(tenant)

    def check_scope(self, scope: TokenScope) -> None:
        if not self.access.may(scope):
            raise Denied("scope-missing", f"the token lacks the scope {scope!r}")

    def check_queue(self, name: str) -> None:
        if not self.access.may_use_queue(name):
            raise Denied("queue-limited", f"the token is not for the queue {name!r}")

    def check_all_queues(self) -> None:
        """For what is about jobs of any queue."""
        if self.access.queues:
            raise Denied("queue-limited", "the token is only for some queues, and this is about all of them")


_OF_OTHERS: dict[Cause, str] = {
    "parent": "it waits for another job to end",
    "lane_blocked": "its lane is blocked by another job",
    "lane_order": "other jobs come before it in its lane",
    "slot_full": "a slot that it needs is in use by other jobs",
}


def _without_others(hold: Hold) -> Hold:
    detail = _OF_OTHERS.get(hold.cause)
    return hold if detail is None else Hold(hold.cause, detail, "ask somebody whose token is for all queues")


class Callers:
    """`tokens` of False: who brings none may do everything, for it is on this machine."""

    def __init__(self, app: Leasehold, *, tokens: bool, surface: str = "http") -> None:
        self._app = app
        self._tokens = tokens
        self._surface = surface

    def admit(
        self, authorization: str | None, tenant: str | None, *, forwarded: bool, scope: TokenScope | None
    ) -> Caller:
        """`forwarded`: a proxy has passed the request on, so it may come from anywhere. `scope` of None: what is asked
        for is not known yet, and must be checked with `check_scope`. Raises Denied, and TenantNotFound for tenants that
        the caller may not know of, as for those that do not exist."""
        access = self._access(authorization, forwarded)
        if scope is not None:
            Caller(self._app, access, None).check_scope(scope)
        tenant = tenant or access.only_tenant
        if not access.may_use_tenant(tenant):
            if tenant is None:
                raise Denied("scope-missing", "the token is for tenants; name one with Leasehold-Tenant")
            raise TenantNotFound(tenant)
        return Caller(self._app, access, tenant, self._surface)

    def _access(self, authorization: str | None, forwarded: bool) -> Access:
        if authorization is None:
            if not self._tokens and not forwarded:
                return LOCAL
            raise Denied("unauthenticated", "send a token: Authorization: Bearer lh_…")
        scheme, _, text = authorization.partition(" ")
        found = None
        if scheme.lower() == "bearer":
            # The app's own store knows the tokens of all tenants.
            found = self._app.__internals__.operations.find_token(text.strip())
        if found is None:
            raise Denied("unauthenticated", "the token is unknown, revoked or expired")
        return found
