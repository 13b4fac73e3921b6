"""Who may ask over HTTP."""

from __future__ import annotations

from typing import Protocol

from leasehold.domain.tokens import NewToken, Token, TokenRow


class Tokens(Protocol):
    """By their hashes: whoever reads the database cannot ask in their name."""

    def add_token(self, token: NewToken) -> Token | None:
        """None: the name is taken, also by one that was revoked."""
        ...

    def find_token(self, hash: str) -> Token | None:
        """One that counts now, by the store's clock."""
        ...

    def list_tokens(self) -> list[TokenRow]: ...

    def revoke_token(self, name: str) -> bool:
        """It counts no more, from now on. False: there is none."""
        ...
