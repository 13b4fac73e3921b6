"""Pages of jobs."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.remote import read
from leasehold.remote.talk import Ask, Talk, once
from leasehold.remote.values import Page
from leasehold.types import State


def listing(states: Iterable[State], limit: int, before: str | None, **criteria: str | None) -> Talk[Page]:
    named = [state.value for state in states]
    params = {"state": named, "limit": limit, "cursor": before, **criteria}
    return once(Ask("GET", "/v1/jobs", params, repeat=True), read.page)
