"""`Remote`: the jobs behind a server, as `Leasehold` has those in a database."""

from __future__ import annotations

from leasehold.domain.checks.names import checked_tenant
from leasehold.remote.transport import Connections, Line
from leasehold.remote.view import Tenant, View
from leasehold.types import Duration


class Remote(View):
    """A server of the HTTP API. Its verbs are those of `Leasehold`, with an async twin each, and raise the same errors;
    besides them RemoteUnreachable and RemoteError. May be used from many threads. `tenant` names whose jobs it is
    about, for a token of many. `timeout` is how long the server may take to answer; verbs that wait for something
    wait that much longer. In async code, `async with Remote(…) as api:` keeps the connections open between calls."""

    def __init__(
        self, url: str, *, token: str | None = None, tenant: str | None = None, timeout: Duration = 30
    ) -> None:
        named = None if tenant is None else checked_tenant(tenant)
        super().__init__(Line(Connections(url, token, timeout), named))

    def __repr__(self) -> str:
        return f"<Remote {self._line.connections.url}>"

    def tenant(self, name: str) -> Tenant:
        """The jobs of one tenant, over the same connections."""
        return Tenant(Line(self._line.connections, checked_tenant(name)))

    def close(self) -> None:
        """Close the connections. It opens new ones if it is used again."""
        self._line.connections.close()

    async def aclose(self) -> None:
        await self._line.connections.aclose()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Remote:
        await self._line.connections.keep()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
