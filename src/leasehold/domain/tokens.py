"""API tokens: what a caller over HTTP may do, and in which tenants and queues."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal, get_args

from leasehold.domain.checks.texts import checked_name
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen

TokenScope = Literal["read", "enqueue", "operate", "admin"]
"""`read` sees, `enqueue` makes jobs, `operate` acts on existing jobs, `admin` also sets limits and schedules. No scope
includes another, except `admin`, which includes all."""

SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
PREFIX = "lh_"
"""Lets people and secret scanners recognise a token."""
RANDOM_BYTES = 32
LONGEST_TOKEN = 200
_GLOB = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-*?")


@frozen(kw_only=True)
class Access:
    """What a caller may do. `tenants` and `queues` are patterns such as `agents*`; no queues means all
    queues, no tenants means the app's own store only."""

    name: str
    scopes: tuple[TokenScope, ...]
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()

    def may(self, scope: TokenScope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def may_use_tenant(self, name: str | None) -> bool:
        """Return whether the tenant is allowed; None: the app's own store, which `*` includes."""
        if name is None:
            return not self.tenants or "*" in self.tenants
        return any(fnmatchcase(name, pattern) for pattern in self.tenants)

    def may_use_queue(self, name: str) -> bool:
        return not self.queues or any(fnmatchcase(name, pattern) for pattern in self.queues)

    @property
    def only_tenant(self) -> str | None:
        """The only tenant of this token, which the caller need not name."""
        return self.tenants[0] if len(self.tenants) == 1 and not set("*?") & set(self.tenants[0]) else None


@frozen(kw_only=True)
class Token(Access):
    """A token as it is stored."""

    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@frozen
class TokenRow:
    """A token as a list shows it. `live` is False if it was revoked or has expired."""

    token: Token
    live: bool


@frozen(kw_only=True)
class NewToken:
    name: str
    hash: str
    scopes: tuple[TokenScope, ...]
    tenants: tuple[str, ...]
    queues: tuple[str, ...]
    seconds: float | None
    """Seconds until it expires; None: it lasts until it is revoked."""


def make_token(random: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(random).decode().rstrip("=")


def token_hash(token: str) -> str:
    """Hash a token. A plain hash is enough: 256 random bits cannot be guessed, however fast the hash is."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def checked_token(
    token: str,
    name: str,
    scopes: Iterable[str],
    tenants: Iterable[str] = (),
    queues: Iterable[str] = (),
    expires_in: Duration | None = None,
) -> NewToken:
    return NewToken(
        name=checked_name(name, "name"),
        hash=token_hash(token),
        scopes=checked_scopes(scopes),
        tenants=_checked_patterns(tenants, "tenants"),
        queues=_checked_patterns(queues, "queues"),
        seconds=None if expires_in is None else seconds(expires_in, "expires", positive=True),
    )


def checked_scopes(scopes: Iterable[str]) -> tuple[TokenScope, ...]:
    listed = list(scopes)
    unknown = [scope for scope in listed if scope not in SCOPES]
    if unknown or not listed:
        problem = f"{unknown[0]!r} is not known" if unknown else "is empty"
        raise InvalidInput("scope", problem, f"use {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in listed)


def _checked_patterns(patterns: Iterable[str], field: str) -> tuple[str, ...]:
    listed = tuple(dict.fromkeys(patterns))
    for pattern in listed:
        if not pattern or set(pattern) - _GLOB:
            raise InvalidInput(
                field, f"{pattern!r} is not a pattern", "use names, with * for any text and ? for a character"
            )
    return listed
