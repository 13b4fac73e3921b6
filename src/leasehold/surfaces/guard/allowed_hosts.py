"""Check of the headers Host and Origin.

Any page in a user's browser can send requests to a server on loopback, also under a host name of its own that resolves
to loopback. So a request must name an allowed host, and a browser's request must come from a page of the same host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from leasehold.domain.frozen import frozen
from leasehold.surfaces.guard.denied import Denied

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = "*"


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@frozen
class Places:
    hosts: frozenset[str]
    """Host names of this server, without ports. `*` allows any, for a server behind another check of the host."""
    origins: frozenset[str]
    """Other sites whose pages may send requests, such as `https://ops.example.org`."""

    @classmethod
    def of(cls, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Places:
        named = {host.lower().rstrip(".") for host in hosts} | set(LOOPBACK)
        return cls(frozenset(named), frozenset(origin.lower().rstrip("/") for origin in origins))

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Check all Host and Origin headers of a request. Raises Denied."""
        host = hosts[0] if len(hosts) == 1 else ""
        if ANY not in self.hosts and _name(host) not in self.hosts:
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
