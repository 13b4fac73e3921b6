"""The table of verbs that a child may call agrees with the store."""

from __future__ import annotations

import inspect
from types import NoneType
from typing import get_type_hints

import pytest

from leasehold.stores.store import JobStore
from leasehold.worker.process.rpc import CALLS, FLUSH

OF_GRANT = {"job_id": "id", "token": "token", "attempt": "attempt"}
"""Parameters of verbs, and the field of the grant that the worker fills in."""


@pytest.mark.parametrize("name", sorted(set(CALLS) - {FLUSH}))
def test_a_call_fills_in_what_the_verb_takes_first_and_knows_what_it_returns(name: str):
    verb = getattr(JobStore, name)
    call = CALLS[name]
    parameters = list(inspect.signature(verb).parameters)[1:]
    assert tuple(OF_GRANT.get(one) for one in parameters[: len(call.first)]) == call.first
    assert get_type_hints(verb)["return"] == (NoneType if call.returns is None else call.returns)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {FLUSH, "read_result"}))
def test_a_child_cannot_name_another_job(name: str):
    """`read_result` reads the results of parents, which the child names."""
    sent = list(inspect.signature(getattr(JobStore, name)).parameters)[1 + len(CALLS[name].first) :]
    assert set(sent) & set(OF_GRANT) == set()
