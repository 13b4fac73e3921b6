"""The caller of a request, by its token, and what the token allows."""

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
"""Headers by which we recognise a request that a proxy forwarded."""
LOCAL = Access(name="local", scopes=SCOPES, tenants=("*",))
"""The access of a caller on this machine, if the server requires no token."""


class _InQueue(Protocol):
    @property
    def queue(self) -> str | None: ...


Row = TypeVar("Row", bound=_InQueue)
T = TypeVar("T")


@frozen
class Caller:
    """The caller of a request, and the tenant whose jobs the request is about."""

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
        """The name of the caller in histories and in the audit."""
        return f"{self.surface}:{self.access.name}"[:200]

    def job(self, job_id: str) -> Job[object]:
        """The job. Raises JobNotFound if it does not exist, or if it is in a queue that the caller may not see."""
        job = self.view.get(job_id)
        if not self.access.may_use_queue(job.queue):
            raise JobNotFound(job_id)
        return job

    def visible_rows(self, rows: Iterable[Row]) -> list[Row]:
        """The rows of queues that the caller may see. A row without a queue is about all queues: only callers who
        may see all queues get it."""
        if not self.access.queues:
            return list(rows)
        return [row for row in rows if row.queue is not None and self.access.may_use_queue(row.queue)]

    def visible(self, answer: T) -> T:
        """The answer; a list or page without the rows of queues that the caller may not see."""
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
        """Check that the caller's queues allow the verb on this target. Raises Denied, and JobNotFound for jobs of
        other queues."""
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
        """Why the job does not run. Jobs of other queues may block it: a caller who may see only some queues gets
        neither their ids nor their errors."""
        holds = self.operations.explain(self.job(job_id).id)
        return [_without_others(hold) for hold in holds] if self.access.queues else holds

    def workers(self) -> list[WorkerCard]:
        """The workers of the tenant; of their other tenants, only those that the caller may see."""
        cards = self.operations.list_workers()
        return [replace(card, tenants=tuple(filter(self._may_see_tenant, card.tenants))) for card in cards]

    def _may_see_tenant(self, tenant: str) -> bool:
        return tenant == EVERY_TENANT or self.access.may_use_tenant(tenant)

    def check_scope(self, scope: TokenScope) -> None:
        if not self.access.may(scope):
            raise Denied("scope-missing", f"the token lacks the scope {scope!r}")

    def check_queue(self, name: str) -> None:
        if not self.access.may_use_queue(name):
            raise Denied("queue-limited", f"the token is not for the queue {name!r}")

    def check_all_queues(self) -> None:
        """Check that the caller may see all queues. Raises Denied."""
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
    return hold if detail is None else Hold(hold.cause, detail, "use a token that is for all queues")


class Callers:
    """Finds the caller of each request. With `tokens=False`, a request without a token may do everything, because it
    comes from this machine."""

    def __init__(self, app: Leasehold, *, tokens: bool, surface: str = "http") -> None:
        self._app = app
        self._tokens = tokens
        self._surface = surface

    def admit(
        self, authorization: str | None, tenant: str | None, *, forwarded: bool, scope: TokenScope | None
    ) -> Caller:
        """The caller of a request. `forwarded`: a proxy forwarded the request, so it may come from anywhere. `scope` of
        None: the caller of this method must use `check_scope` later. Raises Denied, and TenantNotFound for a tenant
        that does not exist or that the caller may not see."""
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
            # The app's own store holds the tokens of all tenants.
            found = self._app.__internals__.operations.find_token(text.strip())
        if found is None:
            raise Denied("unauthenticated", "the token is unknown, revoked or expired")
        return found
