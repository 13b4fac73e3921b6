"""The verbs on tokens."""

from __future__ import annotations

import os
from collections.abc import Iterable

from leasehold.domain.checks.durations import Duration
from leasehold.domain.checks.names import checked_name
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
from leasehold.operations.base import StoreDoor


class TokenOperations(StoreDoor):
    def create_token(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        tenants: Iterable[str] = (),
        queues: Iterable[str] = (),
        expires_in: Duration | None = None,
        actor: str | None = None,
    ) -> tuple[Token, str]:
        """What it may do, and the token itself, which nobody can read again."""
        text = make_token(os.urandom(RANDOM_BYTES))
        new = checked_token(text, name, scopes, tenants, queues, expires_in)
        told = {"scopes": new.scopes, "tenants": new.tenants, "queues": new.queues, "seconds": new.seconds}
        with self._recorded("token.create", new.name, actor, **told) as store:
            token = store.add_token(new)
            if token is None:
                raise InvalidInput("name", f"{name!r} was used for a token before", "choose another name")
        return token, text

    def find_token(self, text: str) -> Token | None:
        """What it may do. None: it is none of ours, was revoked, or its time is over."""
        if not text.startswith(PREFIX) or len(text) > LONGEST_TOKEN:
            return None
        return self._store.find_token(token_hash(text))

    def list_tokens(self) -> list[TokenRow]:
        return self._store.list_tokens()

    def revoke_token(self, name: str, *, actor: str | None = None) -> None:
        name = checked_name(name, "name")
        with self._recorded("token.revoke", name, actor) as store:
            if not store.revoke_token(name):
                raise InvalidInput("name", f"no token is named {name!r}", "see leasehold tokens list")
