"""Request rates: limits the requests per second of each valid token, and of each address without one. Counted in the
memory of this process alone."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import threading
import time
from collections.abc import Callable

from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.guard.denied import Denied

USUAL_RATE = 100.0
"""Requests a second."""
BURST_SECONDS = 2.0
"""Seconds whose requests an idle caller may send at once."""
MOST = 10_000
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
        """Names of valid tokens, by the digests of their Authorization headers. Invalid tokens count for their address:
        else each invented token would get a rate of its own."""

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

    def know(self, authorization: str | None, name: str) -> None:
        """Give a valid token a rate of its own, whichever addresses it comes from."""
        if self._rate and authorization is not None:
            with self._lock:
                if len(self._names) >= MOST:
                    self._names.clear()
                self._names[_digest(authorization)] = name

    def _caller(self, authorization: str | None, address: str | None, probe: bool) -> str:
        name = None if authorization is None or probe else self._names.get(_digest(authorization))
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
        if caller not in self._busy_until and len(self._busy_until) >= MOST:
            self._forget(now)
        self._busy_until[caller] = busy
        return 0.0

    def _forget(self, now: float) -> None:
        kept = {caller: busy for caller, busy in self._busy_until.items() if busy > now}
        while len(kept) >= MOST:
            kept.pop(next(iter(kept)))
        self._busy_until = kept


def address_class(address: str | None) -> str:
    """The address to count for. All addresses of a /64 IPv6 network count as one, because one machine can have them
    all."""
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


def _digest(authorization: str) -> str:
    return hashlib.sha256(authorization.encode("utf-8", "surrogatepass")).hexdigest()
