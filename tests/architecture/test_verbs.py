"""The table of verbs: what every one of them says, and where its marks stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest

from leasehold.operations.operations import MODULES
from leasehold.operations.verb import VERBS, Check, Hidden, Internal, Verb

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


def nested_marks(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    for part in get_args(hint):
        yield from nested_marks(part)
