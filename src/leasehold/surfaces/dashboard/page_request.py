"""One request of a page: its caller, what the caller may do, and the addresses of links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote, urlencode

from starlette.requests import Request

from leasehold.domain.frozen import frozen
from leasehold.domain.tokens import TokenScope
from leasehold.operations.operations import Operations
from leasehold.surfaces.guard.callers import Caller

Role = Literal["viewer", "operator", "admin"]
LIVE = "live"
"""The query parameter that requests the stream of a page."""


@frozen
class PageRequest:
    request: Request
    caller: Caller
    read_only: bool = False
    signed_in: bool = False
    """Whether the token comes from the browser's cookie."""

    @property
    def operations(self) -> Operations:
        return self.caller.operations

    @property
    def role(self) -> Role:
        if self.read_only:
            return "viewer"
        return "admin" if self.may("admin") else "operator" if self.may("operate") else "viewer"

    def may(self, scope: TokenScope) -> bool:
        """Whether the caller has this scope. A read-only dashboard allows only `read`."""
        return self.caller.access.may(scope) and (scope == "read" or not self.read_only)

    # -- addresses of links ------------------------------------------------------------------------------------------
    @property
    def root(self) -> str:
        """The path at which the dashboard is mounted."""
        return root_of(self.request)

    @property
    def base(self) -> str:
        return base_of(self.root, self.caller.tenant)

    def url(self, path: str = "", /, **query: object) -> str:
        """The address of a page. Parameters that are None or empty are left out."""
        return f"{self.base}/{path}{_query(query.items())}"

    def job(self, job_id: str) -> str:
        return self.url(f"jobs/{job_id}")

    def static(self, name: str) -> str:
        return f"{self.root}/static/{name}"

    def elsewhere(self, tenant: str | None) -> str:
        """The address of the first page of another tenant."""
        return f"{base_of(self.root, tenant)}/"

    @property
    def path(self) -> str:
        """The path of this page below the base."""
        parts = str(self.request.scope["path"]).removeprefix(self.root).strip("/").split("/")
        return "/".join(parts[2:] if "tenant" in self.request.path_params else parts)

    def here(self, **changes: object) -> str:
        """The address of this page with another query. A change to None removes a parameter."""
        kept = [item for item in self.given() if item[0] not in changes]
        return f"{self.base}/{self.path}{_query([*kept, *changes.items()])}"

    def given(self) -> list[tuple[str, str]]:
        """The query parameters of this page, in their order."""
        return [item for item in self.request.query_params.multi_items() if item[0] != LIVE]

    def back(self, requested: str | None) -> str:
        """The page to show after an action: the requested one if it is a page of the dashboard, else the first."""
        return requested if requested and is_inside(self.root, requested) else self.url()


def root_of(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def is_inside(root: str, address: str) -> bool:
    """Whether the address is a page of the dashboard: a redirect must not lead to another site."""
    inside = address.startswith(f"{root}/") and not address.startswith("//") and "\\" not in address
    return inside and address.isprintable()


def base_of(root: str, tenant: str | None) -> str:
    return root if tenant is None else f"{root}/tenant/{quote(tenant, safe='')}"


def _query(items: Iterable[tuple[str, object]]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in items:
        values = value if isinstance(value, list | tuple) else [value]
        pairs += [(name, str(one)) for one in values if one is not None and one != ""]
    return f"?{urlencode(pairs)}" if pairs else ""
