"""Tokens for callers of the HTTP API. The store knows their hashes, never the tokens themselves."""

from __future__ import annotations

import json

from leasehold.domain.tokens import NewToken, Token, TokenRow
from leasehold.stores.database.database import Row
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.writing import Verbs


class TokenVerbs(Verbs):
    """Tokens of HTTP callers, kept as hashes: a reader of the database cannot use them."""

    def add_token(self, token: NewToken) -> Token | None:
        """Store a token. None: the name is taken, perhaps by a revoked token."""
        rows = self._database.single(
            lambda session: changed(
                session.rows(
                    "insert_token",
                    name=token.name,
                    hash=token.hash,
                    scopes=json.dumps(token.scopes),
                    tenants=json.dumps(token.tenants),
                    queues=json.dumps(token.queues),
                    seconds=token.seconds,
                )
            )
        )
        return _token(rows[0]) if rows else None

    def find_token(self, hash: str) -> Token | None:
        """The token with this hash, if it is valid now by the store's clock."""
        rows = self._rows("find_token", hash=hash)
        return _token(rows[0]) if rows else None

    def list_tokens(self) -> list[TokenRow]:
        """All tokens, without their hashes."""
        return [TokenRow(_token(row), bool(row["live"])) for row in self._rows("list_tokens")]

    def revoke_token(self, name: str) -> bool:
        """Make the token invalid from now on. False: there is no such token."""
        return bool(self._database.single(lambda session: changed(session.tuples("revoke_token", name=name))))


def _token(row: Row) -> Token:
    return Token(
        name=row["name"],
        scopes=tuple(json.loads(row["scopes"])),
        tenants=tuple(json.loads(row["tenants"])),
        queues=tuple(json.loads(row["queues"])),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )
