"""Tokens: found by their hash while they count, by the store's clock."""

from __future__ import annotations

import pytest

from leasehold.domain.errors import InvalidInput
from leasehold.domain.tokens import checked_token, make_token, token_hash
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend

TEXT = make_token(bytes(range(32)))


def add(store: JobStore, text: str = TEXT, name: str = "ci", **more: object):
    return store.add_token(checked_token(text, name, ["read", "enqueue"], **more))


def test_a_token_is_found_by_its_hash_with_what_it_may_do(store: JobStore):
    made = add(store, tenants=["acme", "eu_*"], queues=["agents*"])
    found = store.find_token(token_hash(TEXT))
    assert found == made
    assert found is not None
    assert (found.name, found.scopes) == ("ci", ("read", "enqueue"))
    assert (found.tenants, found.queues) == (("acme", "eu_*"), ("agents*",))
    assert store.find_token(token_hash(TEXT + "x")) is None


def test_the_token_itself_is_not_in_the_database(store: JobStore, backend: Backend):
    add(store)
    assert TEXT not in str(backend.query("SELECT * FROM leasehold.token"))


def test_it_counts_until_its_time_is_over(store: JobStore, clock: ManualClock):
    add(store, expires_in="1h")
    clock.advance(3599)
    assert store.find_token(token_hash(TEXT)) is not None
    clock.advance(1)
    assert store.find_token(token_hash(TEXT)) is None
    assert [row.live for row in store.list_tokens()] == [False]


def test_a_revoked_token_counts_no_more_and_its_name_stays_taken(store: JobStore, clock: ManualClock):
    add(store)
    assert store.revoke_token("ci")
    first = store.list_tokens()[0].token.revoked_at
    assert first == clock.now()
    clock.advance(1)
    assert store.revoke_token("ci")
    assert store.list_tokens()[0].token.revoked_at == first, "it was revoked when it was revoked first"
    assert store.find_token(token_hash(TEXT)) is None
    assert add(store, make_token(bytes(32))) is None
    assert not store.revoke_token("nobody")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"scopes": []}, "scope"),
        ({"scopes": ["read", "root"]}, "scope"),
        ({"scopes": ["read"], "queues": ["a b"]}, "queues"),
        ({"scopes": ["read"], "tenants": [""]}, "tenants"),
        ({"scopes": ["read"], "expires_in": 0}, "expires"),
        ({"scopes": ["read"], "name": " "}, "name"),
    ],
)
def test_what_a_token_cannot_be_is_refused(given: dict[str, object], field: str):
    with pytest.raises(InvalidInput) as caught:
        checked_token(TEXT, **{"name": "ci", **given})
    assert caught.value.field == field


def test_each_scope_is_for_itself_and_admin_is_all():
    reader = add_access("read")
    assert reader.may("read")
    assert not any(reader.may(scope) for scope in ("enqueue", "operate", "admin"))
    assert all(add_access("admin").may(scope) for scope in ("read", "enqueue", "operate", "admin"))


def test_tenants_and_queues_are_patterns():
    own, acme = add_access("read"), add_access("read", tenants=("acme", "eu_*"))
    assert own.may_use_tenant(None)
    assert not own.may_use_tenant("acme")
    assert acme.may_use_tenant("acme")
    assert acme.may_use_tenant("eu_1")
    assert not acme.may_use_tenant("acme2")
    assert not acme.may_use_tenant(None)
    assert add_access("read", tenants=("*",)).may_use_tenant(None)
    assert own.may_use_queue("default")
    agents = add_access("read", queues=("agents*",))
    assert agents.may_use_queue("agents.slow")
    assert not agents.may_use_queue("default")


def test_only_a_token_of_one_tenant_need_not_name_it():
    assert add_access("read", tenants=("acme",)).only_tenant == "acme"
    assert add_access("read", tenants=("acme*",)).only_tenant is None
    assert add_access("read", tenants=("acme", "beta")).only_tenant is None
    assert add_access("read").only_tenant is None


def add_access(scope: str, **more: object):
    from leasehold.domain.tokens import Access

    return Access(name="x", scopes=(scope,), **more)
