"""Verbs and reads of tokens."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from leasehold.domain.checks.times import Duration
from leasehold.domain.errors import InvalidInput
from leasehold.domain.tokens import (
    LONGEST_TOKEN,
    PREFIX,
    RANDOM_BYTES,
    Token,
    TokenRow,
    checked_token,
    make_token,
    token_hash,
)
from leasehold.operations.arguments import Actor, Name
from leasehold.operations.verb import Backend, Check, read, verb

Listed = Annotated[Iterable[str], Check(lambda value, _: value if isinstance(value, str) else tuple(value))]
"""Several names, as a tuple, because they are read more than once."""


def _detail(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audit keeps. Invalid arguments raise here, before the entry, so the audit does not have them."""
    wanted = (given[name] for name in ("name", "scopes", "tenants", "queues", "expires_in"))
    new = checked_token(PREFIX, *wanted)
    return {"scopes": new.scopes, "tenants": new.tenants, "queues": new.queues, "seconds": new.seconds}


@verb("token.create", scope="admin", guard="all queues", audit=_detail)
def create_token(
    backend: Backend,
    name: str,
    scopes: Listed,
    *,
    tenants: Listed = (),
    queues: Listed = (),
    expires_in: Duration | None = None,
    actor: Actor = None,
) -> tuple[Token, str]:
    """Create a token. Returns its permissions and its text, which cannot be read again."""
    text = make_token(os.urandom(RANDOM_BYTES))
    token = backend.store.add_token(checked_token(text, name, scopes, tenants, queues, expires_in))
    if token is None:
        raise InvalidInput("name", f"{name!r} was used for a token before", "choose another name")
    return token, text


@read("token.find", guard="all queues")
def find_token(backend: Backend, text: str) -> Token | None:
    """Find the token with this text. None: it does not exist, was revoked, or has expired."""
    if not text.startswith(PREFIX) or len(text) > LONGEST_TOKEN:
        return None
    return backend.store.find_token(token_hash(text))


@read("tokens.list", guard="all queues")
def list_tokens(backend: Backend) -> list[TokenRow]:
    """List tokens, without their texts."""
    return backend.store.list_tokens()


@verb("token.revoke", scope="admin", guard="all queues", destructive=True)
def revoke_token(backend: Backend, name: Name, *, actor: Actor = None) -> None:
    """Revoke a token. Its name stays taken."""
    if not backend.store.revoke_token(name):
        raise InvalidInput("name", f"no token is named {name!r}", "see leasehold tokens list")
