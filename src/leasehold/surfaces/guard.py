"""Checks of requests, for every surface that listens: host and origin, rate, token, scope, tenant and queues."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leasehold.app import Leasehold
from leasehold.domain.checks.texts import EVERY_TENANT
from leasehold.domain.errors import InvalidInput, JobNotFound, TenantNotFound, UnknownTask
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.records import Cause, Hold, TaskCard, WorkerCard
from leasehold.domain.tokens import SCOPES, Access, TokenScope
from leasehold.operations import jobs, tokens, workers
from leasehold.operations.operations import Operations
from leasehold.operations.verb import Verb
from leasehold.types import CallOptions, Tenant
from leasehold.types import Job as Handle

# -- refused requests --------------------------------------------------------------------------------------------------

Reason = Literal[
    "wrong-host",
    "foreign-origin",
    "unauthenticated",
    "scope-missing",
    "queue-limited",
    "too-large",
    "too-deep",
    "too-many-requests",
]


STATUSES: dict[Reason, int] = {
    "wrong-host": 421,
    "foreign-origin": 403,
    "unauthenticated": 401,
    "scope-missing": 403,
    "queue-limited": 403,
    "too-large": 413,
    "too-deep": 422,
    "too-many-requests": 429,
}
"""The HTTP status of each reason."""


class Denied(Exception):
    def __init__(self, reason: Reason, detail: str, retry_after: int | None = None) -> None:
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after
        """Seconds after which the caller may try again. None: a later try would fail as well."""
        super().__init__(detail)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the refusal."""
        found = {}
        if self.reason == "unauthenticated":
            found["WWW-Authenticate"] = 'Bearer realm="leasehold"'
        if self.retry_after is not None:
            found["Retry-After"] = str(self.retry_after)
        return found


# -- bodies of refused requests ----------------------------------------------------------------------------------------
# A server closes the connection if it has answered and not read the whole body. A client that is still sending would
# find the connection broken, and never see the answer.

MOST_DISCARDED = 64 * 1024 * 1024
"""Bytes."""
DISCARD_SECONDS = 10.0


class RequestBody:
    """The body of a request over ASGI. What a refusal has left of it is read and discarded."""

    def __init__(self, headers: Mapping[str, str], receive: Receive) -> None:
        self._receive_message = receive
        self._complete = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        self._is_held = headers.get("expect", "").lower() == "100-continue"
        """The client sends nothing before the server reads."""

    async def receive(self) -> Message:
        message = await self._receive_message()
        self._complete = not message.get("more_body", False)
        self._is_held = False
        return message

    def discarding(self, send: Send) -> Send:
        """Wrap `send`: an error is sent at once, but its response ends only when the body was read, up to a limit."""
        refused = False

        async def send_and_discard(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                refused = message["status"] >= 400
            elif refused and not (message.get("more_body") or self._complete or self._is_held):
                await send({**message, "more_body": True})
                await self._discard()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        return send_and_discard

    async def _discard(self) -> None:
        left = MOST_DISCARDED
        with anyio.move_on_after(DISCARD_SECONDS):
            while left > 0 and not self._complete:
                message = await self._receive_message()
                self._complete = not message.get("more_body", False)
                left -= len(message.get("body", b""))


class DiscardingApp:
    """An ASGI app around another: discards the bodies of refused requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            body = RequestBody(Headers(scope=scope), receive)
            receive, send = body.receive, body.discarding(send)
        await self._app(scope, receive, send)


# -- Host and Origin ---------------------------------------------------------------------------------------------------
# Any page in a user's browser can send requests to a server on loopback, also under a host name of its own that
# resolves to loopback. So a request must name an allowed host, and a browser's request must come from a page of the
# same host.

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@frozen
class AllowedHosts:
    hosts: frozenset[str]
    """Host names of this server, without ports. `*` allows any, for a server behind another check of the host."""
    origins: frozenset[str]
    """Other sites whose pages may send requests, such as `https://ops.example.org`."""

    @classmethod
    def of(cls, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> AllowedHosts:
        named = {host.lower().rstrip(".") for host in hosts} | set(LOOPBACK)
        return cls(frozenset(named), frozenset(origin.lower().rstrip("/") for origin in origins))

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Check all Host and Origin headers of a request. Raises Denied."""
        host = hosts[0] if len(hosts) == 1 else ""
        if ANY_HOST not in self.hosts and _name(host) not in self.hosts:
            raise Denied("wrong-host", "the Host header is not a name of this server; see --allow-host")
        for origin in origins:
            if _host_and_port(origin) != host.lower() and origin.lower() not in self.origins:
                raise Denied(
                    "foreign-origin", "pages of other sites may not call this server; see --allow-origin"
                )


def _name(host: str) -> str:
    """The host without its port. Text that is no host gives "", which is never allowed."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _host_and_port(origin: str) -> str:
    """The host and port of an origin; "" for `null` and for text that is no origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


# -- request rates -----------------------------------------------------------------------------------------------------
# The counts are in the memory of this process only.

USUAL_RATE = 100.0
"""Requests per second."""
BURST_SECONDS = 2.0
"""An idle caller may send the requests of this many seconds at once."""
MOST_CALLERS = 10_000
"""Callers kept in memory; the idle ones are dropped first."""


class RequestRates:
    """Limits how often callers send requests. A rate of 0 is no limit."""

    def __init__(self, rate: float = USUAL_RATE, now: Callable[[], float] = time.monotonic) -> None:
        if not 0 <= rate < math.inf:
            raise InvalidInput(
                "rate_limit", f"{rate!r} is not a rate", "give requests per second; 0: no limit"
            )
        self._spacing = 1 / rate if rate else 0.0
        self._rate = rate
        self._now = now
        self._lock = threading.Lock()
        self._busy_until: dict[str, float] = {}
        """For each caller, the time until which its past requests use up its rate."""
        self._names: dict[str, str] = {}
        """Names of valid tokens, by the digests of their Authorization headers. Requests with invalid tokens count
        for their address: else each invented token would get a rate of its own."""

    def check(self, authorization: str | None, address: str | None, *, probe: bool = False) -> None:
        """Count a request. Raises Denied if its caller has sent too many."""
        if not self._rate:
            return
        with self._lock:
            wait = self._take(self._caller(authorization, address, probe))
        if wait > 0:
            raise Denied(
                "too-many-requests",
                f"more than {self._rate:g} requests per second; try again in {math.ceil(wait)} s",
                retry_after=math.ceil(wait),
            )

    def register_token(self, authorization: str | None, name: str) -> None:
        """Give a valid token a rate of its own, for requests from any address."""
        if self._rate and authorization is not None:
            with self._lock:
                if len(self._names) >= MOST_CALLERS:
                    self._names.clear()
                self._names[_digest_of_token(authorization)] = name

    def _caller(self, authorization: str | None, address: str | None, probe: bool) -> str:
        name = None if authorization is None or probe else self._names.get(_digest_of_token(authorization))
        if name is not None:
            return f"token {name}"
        return f"{'probe' if probe else 'address'} {address_class(address)}"

    def _take(self, caller: str) -> float:
        """Seconds that the caller must wait; 0: the request is allowed, and counted."""
        now = self._now()
        busy = max(self._busy_until.get(caller, now), now) + self._spacing
        wait = busy - now - max(BURST_SECONDS, self._spacing)
        if wait > 1e-9:
            return wait
        if caller not in self._busy_until and len(self._busy_until) >= MOST_CALLERS:
            self._forget(now)
        self._busy_until[caller] = busy
        return 0.0

    def _forget(self, now: float) -> None:
        kept = {caller: busy for caller, busy in self._busy_until.items() if busy > now}
        while len(kept) >= MOST_CALLERS:
            kept.pop(next(iter(kept)))
        self._busy_until = kept


def address_class(address: str | None) -> str:
    """The key that requests from an address are counted under. All addresses of a /64 IPv6 network have one key,
    because one machine can have them all."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return address or "unknown"
    if found.is_loopback:
        return "loopback"
    if isinstance(found, ipaddress.IPv6Address):
        return (
            found.ipv4_mapped.compressed
            if found.ipv4_mapped
            else str(ipaddress.ip_network((found, 64), False))
        )
    return found.compressed


def _digest_of_token(authorization: str) -> str:
    return hashlib.sha256(authorization.encode("utf-8", "surrogatepass")).hexdigest()


# -- tokens and what they allow ----------------------------------------------------------------------------------------

TENANT_HEADER = "Leasehold-Tenant"
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
"""Headers that show that a proxy forwarded the request."""
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

    def job(self, job_id: str) -> Job:
        """The job. Raises JobNotFound if it does not exist, or if it is in a queue that the caller may not see."""
        job = self.operations.call(jobs.get, job_id)
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
        """The answer; a list or page loses the rows of queues that the caller may not see."""
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
        holds = self.operations.call(jobs.explain, self.job(job_id).id)
        return [_without_others(hold) for hold in holds] if self.access.queues else holds

    def workers(self) -> list[WorkerCard]:
        """The workers of the tenant, each with only those of its tenants that the caller may see."""
        cards = self.operations.call(workers.list_workers)
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
            found = self._app.__internals__.operations.call(tokens.find_token, text.strip())
        if found is None:
            raise Denied("unauthenticated", "the token is unknown, revoked or expired")
        return found


# -- calls of tasks ----------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class CallRequest:
    """A call of a task by a caller. None means the task's own setting. No field lifts a limit."""

    task: str
    args: Mapping[str, Any] = field(default_factory=dict)
    delay: float | str | None = None
    at: datetime | None = None
    priority: int | None = None
    group: str | None = None
    tags: Sequence[str] | None = None
    unique: str | None = None

    def options(self) -> CallOptions:
        """The options that the caller gave."""
        options: CallOptions = {}
        if self.delay is not None:
            options["delay"] = self.delay
        if self.at is not None:
            options["at"] = self.at
        if self.priority is not None:
            options["priority"] = self.priority
        if self.group is not None:
            options["group"] = self.group
        if self.tags is not None:
            options["tags"] = tuple(self.tags)
        if self.unique is not None:
            options["unique"] = self.unique
        return options


def tasks_for(caller: Caller) -> list[TaskCard]:
    """The tasks that the caller may call, by name."""
    tasks = caller.view.__internals__.tasks.definitions
    cards = (task.card for _, task in sorted(tasks.items()))
    return [card for card in cards if caller.access.may_use_queue(card.queue)]


def enqueue_for(caller: Caller, calls: Sequence[CallRequest]) -> Sequence[Handle[Any]]:
    """Enqueue all calls or none, in their order. Raises UnknownTask, also for tasks of queues that the caller may not
    see."""
    _check_tasks(caller, calls)
    return caller.view.__internals__.enqueue_calls([(call.task, call.args, call.options()) for call in calls])


def enqueue_once_for(
    caller: Caller, calls: Sequence[CallRequest], key: str, body: object
) -> tuple[Sequence[Handle[Any]], bool]:
    """Enqueue the calls once for an idempotency key of the caller; the bool says whether this is a repeat. `body` is
    the request as JSON. Raises UnknownTask, and IdempotencyKeyReused for another body with the same key."""
    _check_tasks(caller, calls)
    fingerprint = _digest(json.dumps(body, sort_keys=True))
    named = [(call.task, call.args, call.options()) for call in calls]
    return caller.view.__internals__.enqueue_calls_once(named, _digest(caller.actor, key), fingerprint)


def _check_tasks(caller: Caller, calls: Sequence[CallRequest]) -> None:
    allowed = [card.name for card in tasks_for(caller)]
    for call in calls:
        if call.task not in allowed:
            raise UnknownTask(call.task, allowed)


def _digest(*texts: str) -> str:
    """A digest of fixed length, so that keys and bodies are not stored in clear."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
