"""A claim takes from one source after the other, and each is a transaction of its own on PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from leasehold.stores.postgres.claim import LaneTake
from tests.backends import Backend, put


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_what_was_taken_is_told_though_the_next_source_fails(
    store: Any, backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    plain = put(store, priority=5)
    in_lane = put(store, lane="l")

    def take(strategy, groups, open_gates, room):
        raise psycopg.errors.UniqueViolation("somebody else starts in the lane, again and again")

    with monkeypatch.context() as patch:
        patch.setattr(LaneTake, "take", take)
        assert [grant.id for grant in store.claim("w", ["default"], 5)] == [plain.id]
        with pytest.raises(psycopg.errors.UniqueViolation):
            store.claim("w", ["default"], 5)
    assert [grant.id for grant in store.claim("w", ["default"], 5)] == [in_lane.id]
