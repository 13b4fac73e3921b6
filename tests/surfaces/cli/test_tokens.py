"""`tokens create|list|revoke`."""

from __future__ import annotations

from leasehold import Leasehold
from leasehold.domain.tokens import PREFIX
from leasehold.operations import tokens
from tests.surfaces.cli.conftest import Answer


def test_a_token_is_made_shown_once_and_revoked(here, app: Leasehold):
    made: Answer = here(
        "tokens", "create", "ci", "--scope", "enqueue", "--scope", "read", "--queue", "agents*"
    )
    assert made.code == 0
    token = made.out.strip()
    assert token.startswith(PREFIX)
    operations = app.__internals__.operations
    found = operations.call(tokens.find_token, token)
    assert found is not None
    assert (found.scopes, found.queues) == (("read", "enqueue"), ("agents*",))
    listed = here("tokens", "list", "--json")
    assert token not in listed.out
    assert [(row["name"], row["live"]) for row in listed.json] == [("ci", True)]
    assert here("tokens", "revoke", "ci").code == 0
    assert operations.call(tokens.find_token, token) is None
    assert "revoked" in here("tokens", "list").out


def test_a_taken_name_and_an_unknown_scope_are_usage_errors(here, app: Leasehold):
    assert here("tokens", "create", "ci", "--scope", "read").code == 0
    again = here("tokens", "create", "ci", "--scope", "read")
    assert again.code == 2
    assert "name" in again.err
    assert here("tokens", "create", "x", "--scope", "root").code == 2
    assert here("tokens", "revoke", "nobody").code == 2
