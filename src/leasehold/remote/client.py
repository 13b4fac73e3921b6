"""`Remote`: the jobs behind a server, with the verbs of `Leasehold`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from leasehold.client.job import Job
from leasehold.client.view import View
from leasehold.domain.checks.texts import checked_tenant
from leasehold.domain.checks.times import Duration
from leasehold.domain.job import Enqueued
from leasehold.remote import exchange
from leasehold.remote.exchange import CallOptions, JobCall
from leasehold.remote.operator import RemoteOperator
from leasehold.remote.transport import Connections, Transport


class RemoteView(View):
    """Base of `Remote` and `api.tenant(name)`: the verbs of `Leasehold`, and calls of tasks by name."""

    def __init__(self, transport: Transport) -> None:
        operator = RemoteOperator(transport)
        super().__init__(operator, lambda name: None, operator.task_cards, operator.run_schedule)
        self._transport = transport

    def enqueue(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **settings: Unpack[CallOptions],
    ) -> Job[Any]:
        """Enqueue a task by its name: `api.enqueue("add", {"a": 1}, delay="10m", group="g")`. If the connection is
        lost, the request is sent once more, and still makes one job. With your own `idempotency_key` you can repeat the
        call yourself: all calls with one key make one job within a day."""
        return self._made(self._transport.run(exchange.enqueue(name, args, idempotency_key, settings)))

    async def aenqueue(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **settings: Unpack[CallOptions],
    ) -> Job[Any]:
        return self._made(await self._transport.arun(exchange.enqueue(name, args, idempotency_key, settings)))

    def enqueue_many(self, jobs: Iterable[JobCall], *, idempotency_key: str | None = None) -> list[Job[Any]]:
        """Enqueue many jobs, of any tasks: `api.enqueue_many([{"task": "add", "args": {"a": 1}, "group": "g"}])`. Up to
        1,000 jobs are stored all or none; more are sent in pieces of 1,000. If a later piece fails, PartlyStored has
        the ids of the jobs that were stored."""
        made = self._transport.run(exchange.enqueue_many(jobs, idempotency_key))
        return [self._made(one) for one in made]

    async def aenqueue_many(
        self, jobs: Iterable[JobCall], *, idempotency_key: str | None = None
    ) -> list[Job[Any]]:
        made = await self._transport.arun(exchange.enqueue_many(jobs, idempotency_key))
        return [self._made(one) for one in made]

    def _made(self, made: Enqueued) -> Job[Any]:
        return Job(made.id, self._operator, self._find_task, created=made.created)


class Tenant(RemoteView):
    """One tenant of the server: `acme = api.tenant("acme")`."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._transport.tenant or ""

    def __repr__(self) -> str:
        return f"<Tenant {self.name}>"


class Remote(RemoteView):
    """A server of the HTTP API. Its verbs are those of `Leasehold`, each with an async twin, and raise the same errors,
    and also RemoteUnreachable and RemoteError. Threads may share it. `tenant` chooses the tenant, for a token that is
    valid for several. `timeout` is how long the server may take to answer; verbs that wait add it to their own time. In
    async code, `async with Remote(…) as api:` keeps the connections open between calls."""

    def __init__(
        self, url: str, *, token: str | None = None, tenant: str | None = None, timeout: Duration = 30
    ) -> None:
        named = None if tenant is None else checked_tenant(tenant)
        super().__init__(Transport(Connections(url, token, timeout), named))

    def __repr__(self) -> str:
        return f"<Remote {self._transport.connections.url}>"

    def tenant(self, name: str) -> Tenant:
        """Return the view of one tenant, over the same connections."""
        return Tenant(Transport(self._transport.connections, checked_tenant(name)))

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        self._transport.connections.close()

    async def aclose(self) -> None:
        await self._transport.connections.aclose()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Remote:
        await self._transport.connections.keep()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
