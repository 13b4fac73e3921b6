"""The table of verbs: what every one of them says, and where its marks stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest

from leasehold.client.bulk import Bulk
from leasehold.domain.bulk import ARGUMENTS, BULK_STATES, BulkOptions
from leasehold.operations.operations import MODULES
from leasehold.operations.verb import VERBS, Check, Hidden, Internal, Verb
from leasehold.surfaces.http import requests

OURS = (Check, Hidden, Internal)

ALL = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)


def test_the_table_is_full_and_names_are_unique():
    assert {verb.function.__module__ for verb in VERBS} == {module.__name__ for module in MODULES}
    names, lines = [verb.name for verb in VERBS], [verb.http for verb in VERBS if verb.http]
    assert len(names) == len(set(names)) > 60
    assert len(lines) == len(set(lines)) > 40


@ALL
def test_a_verb_explains_itself(verb: Verb[..., Any]):
    assert verb.doc.endswith(".")
    assert verb.returns is not None
    if verb.http:
        assert verb.method in ("GET", "POST", "PUT")
        assert (verb.method == "GET") is not verb.write


@ALL
def test_marks_stand_on_the_outermost_annotated(verb: Verb[..., Any]):
    """`Annotated[X, Check()] | None` would hide the check from the verb."""
    for param in verb.params:
        plain = get_args(param.annotation)[0] if param.marks else param.annotation
        hidden = [mark for mark in nested_marks(plain) if isinstance(mark, OURS) or mark in OURS]
        assert hidden == [], param.name


@ALL
def test_what_changes_something_says_who_did_it_and_to_what(verb: Verb[..., Any]):
    if verb.write:
        assert verb.params[-1].name == "actor"
        assert verb.params[-1].internal
        assert verb.target is not None


@ALL
def test_a_token_for_some_queues_is_looked_at(verb: Verb[..., Any]):
    """A guard by the target needs a target that is one."""
    if verb.guard in ("job", "queue"):
        assert verb.params[0].name == {"job": "job_id", "queue": "name"}[verb.guard]
    if verb.write:
        assert verb.guard != "rows"


BULK = [verb for verb in VERBS if verb.bulk]
FIELDS_OF_THE_PAGE = {"back", "verb", "criteria", "matched", "typed"}
"""What the form of the dashboard's bulk page sends besides the arguments of the verb."""


def test_bulk_verbs_are_those_of_the_table_and_operators_may_call_them():
    """The route, the page and the form for bulk calls have this one scope, and look at the queue of the filter."""
    assert [verb.word for verb in BULK] == list(BULK_STATES) == list(ARGUMENTS)
    assert {(verb.name, verb.scope, verb.guard) for verb in BULK} == {
        (f"job.{verb.word}", "operate", "job") for verb in BULK
    }
    assert {name for name in vars(Bulk) if not name.startswith(("_", "a"))} == set(BULK_STATES)


@pytest.mark.parametrize("verb", BULK, ids=lambda verb: verb.name)
def test_the_arguments_of_a_bulk_verb_are_apart_from_the_filter(verb: Verb[..., Any]):
    own = {one.name for one in verb.bulk_body}
    assert {one.public for one in verb.bulk_body} == own == set(ARGUMENTS[verb.word].required)
    assert own & requests.BulkJobs.model_fields.keys() == set()
    assert own & BulkOptions.__annotations__.keys() == set()
    assert own & FIELDS_OF_THE_PAGE == set()
    for other in BULK:
        for one in other.bulk_body:
            same = [mine.annotation for mine in verb.bulk_body if mine.name == one.name]
            assert same in ([], [one.annotation]), "one field of the body holds both"


def test_what_callers_never_send_is_internal():
    internal = {one.name for verb in VERBS for one in verb.params if one.internal}
    assert internal == {"actor", "new_id"}
    for verb in VERBS:
        assert all(one.internal for one in verb.params if verb.write and one.name in internal), verb.name


def nested_marks(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    for part in get_args(hint):
        yield from nested_marks(part)
