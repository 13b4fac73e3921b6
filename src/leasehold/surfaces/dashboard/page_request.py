"""A request for a dashboard page: its caller, what the caller may do, addresses of links, and forms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.tokens import TokenScope
from leasehold.operations.operations import Operations
from leasehold.surfaces.guard import Caller, Denied

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


# -- forms -------------------------------------------------------------------------------------------------------------

LARGEST = 4 * 1024 * 1024
"""Bytes. Arguments have at most one MiB, and a form encodes some characters as three."""
MOST_FIELDS = 500


@frozen
class Form:
    fields: Mapping[str, str]

    def text(self, name: str) -> str:
        """The text of a field. Raises InvalidInput if it is missing or empty."""
        value = self.fields.get(name, "")
        if not value:
            raise InvalidInput(name, "is empty", "fill it in")
        return value

    def maybe(self, name: str) -> str | None:
        return self.fields.get(name, "").strip() or None

    def has(self, name: str) -> bool:
        """Whether a checkbox is ticked."""
        return bool(self.fields.get(name))

    def whole(self, name: str) -> int:
        text = self.text(name).strip().replace(",", "").replace("_", "")
        try:
            return int(text)
        except ValueError:
            raise InvalidInput(name, f"{text!r} is not a whole number", "write it in digits") from None

    def json(self, name: str) -> Any:
        return parsed(self.text(name), name)


def carried(name: str, value: object) -> tuple[str, str]:
    """The name and value of a hidden field that must come back unchanged. Browsers change line ends, and pages replace
    control characters; a text with either is sent as JSON, under a name that ends with a star."""
    text = str(value)
    return (name, text) if text.isprintable() else (f"{name}*", json.dumps(text))


def parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(name, f"is not JSON: {error}", 'write texts in quotes, such as "yes"') from None


async def read_form(request: Request) -> Form:
    """Read the form of a request. Raises Denied if it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise Denied("too-large", f"the form has more than {LARGEST:,} bytes")
    try:
        pairs = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, strict_parsing=False, max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise InvalidInput("form", "cannot be read", "send it again") from None
    return Form(dict(_taken(name, value) for name, value in pairs))


def _taken(name: str, value: str) -> tuple[str, str]:
    return (
        (name[:-1], str(parsed(value, name))) if name.endswith("*") else (name, value.replace("\r\n", "\n"))
    )
