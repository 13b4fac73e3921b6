"""From where: the Host that a request names, and the Origin of the page that sends it.

A page in somebody's browser can reach a server on loopback, and by a name of its own that it points there. So a request
must name a host that we know as ours, and a browser's must come from the same one.
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
    """Names by which we are reached, without ports; with `*` any will do, which is for who checks it elsewhere."""
    origins: frozenset[str]
    """Of other sites whose pages may ask, such as `https://ops.example.org`."""

    @classmethod
    def of(cls, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Places:
        named = {host.lower().rstrip(".") for host in hosts} | set(LOOPBACK)
        return cls(frozenset(named), frozenset(origin.lower().rstrip("/") for origin in origins))

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """All Host and Origin headers of a request. Raises Denied."""
        host = hosts[0] if len(hosts) == 1 else ""
        if ANY not in self.hosts and _name(host) not in self.hosts:
            raise Denied("wrong-host", "the Host header is not a name of this server; see --allow-host")
        for origin in origins:
            if _place(origin) != host.lower() and origin.lower() not in self.origins:
                raise Denied(
                    "foreign-origin", "pages of other sites may not call this server; see --allow-origin"
                )


def _name(host: str) -> str:
    """Without the port. Text that is no host gives a name that nobody has."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _place(origin: str) -> str:
    """Host and port; of `null`, and of what is no origin, nothing."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
