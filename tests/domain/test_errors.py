"""Our exceptions travel: through pickle, through copy, and out of the processes of a pool."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Iterator
from multiprocessing.pool import Pool
from typing import Any

import pytest

from leasehold.domain.errors import (
    AtCapacity,
    DriverMissing,
    InvalidArguments,
    LeaseholdError,
    LeaseLost,
    RunningJob,
    WaitTimedOut,
    need_extra,
)
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.signals import Fail, Park, Signal, StopRequested
from leasehold.runners.contract import ExecutionState, Phase

ROOTS = (LeaseholdError, Signal, StopRequested, Park)


def tree(root: type[BaseException]) -> Iterator[type[BaseException]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


CLASSES = sorted(
    {found for root in ROOTS for found in tree(root) if found.__module__.startswith("leasehold.")},
    key=lambda found: found.__qualname__,
)

SPECIAL: dict[str, tuple[Any, ...]] = {
    "NothingToCollect": ("run-1", ExecutionState(Phase.RUNNING)),
    "AtCapacity": ("kind", 2, [RunningJob("id", "owner", None, None)], 1.5),
    "Park": (QuestionAsked("key", "text"),),
}
BY_TYPE = {
    "str": "text",
    "int": 7,
    "float": 1.5,
    "list[str]": ["a", "b"],
    "Sequence[str]": ("a", "b"),
    "Mapping[str, str]": {"field": "problem"},
    "str | None": "text",
    "Duration": "10s",
    "QuestionAsked": QuestionAsked("key", "text"),
}


def instance_of(kind: type[BaseException]) -> BaseException:
    if kind.__name__ in SPECIAL:
        return kind(*SPECIAL[kind.__name__])
    if kind.__init__ is BaseException.__init__ or "self" not in inspect.signature(kind.__init__).parameters:
        return kind("text")
    wanted = list(inspect.signature(kind.__init__).parameters.values())[1:]
    if any(one.kind is one.VAR_POSITIONAL for one in wanted):
        return kind("text")
    return kind(*(BY_TYPE[str(one.annotation)] for one in wanted))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__qualname__)
def test_every_exception_of_ours_comes_back_from_pickle_as_it_was(kind):
    error = instance_of(kind)
    error.add_note("a note")
    for back in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(back) is type(error)
        assert (str(back), back.args) == (str(error), error.args)
        assert vars(back) == vars(error)


def test_the_tree_is_not_empty():
    names = {kind.__name__ for kind in CLASSES}
    assert len(CLASSES) > 30
    assert {"InvalidInput", "WaitTimedOut", "Snooze", "StopRequested", "Park"} <= names


class Own(LeaseLost):
    def __init__(self, order: int) -> None:
        super().__init__("id", 3)
        self.order = order


def fail_with(name: str) -> None:
    if name == "own":
        raise Own(5)
    if name == "wait":
        raise WaitTimedOut("id", 2.0, "queued")
    if name == "fail":
        raise Fail("never")
    raise InvalidArguments("task", {"a": "is missing"})


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.mark.xdist_group("pool")
@pytest.mark.parametrize(
    ("name", "kind", "reported"),
    [
        ("own", Own, {"order": 5, "token": 3, "job_id": "id"}),
        ("wait", WaitTimedOut, {"seconds": 2.0, "state": "queued"}),
        ("fail", Fail, {"reason": "never"}),
        ("arguments", InvalidArguments, {"field": "a", "task": "task"}),
    ],
)
def test_an_exception_comes_out_of_a_pool_of_processes(name, kind, reported, pool):
    with pytest.raises(kind) as caught:
        pool.apply_async(fail_with, (name,)).get(timeout=60)
    assert vars(caught.value).items() >= reported.items()


def test_holders_travel_with_at_capacity():
    error: Any = instance_of(AtCapacity)
    assert pickle.loads(pickle.dumps(error)).holders == error.holders


def test_an_extra_is_missing_if_one_of_its_packages_is():
    need_extra("server", "json", "email")
    with pytest.raises(DriverMissing, match=r"no_such_package is not installed; run: .*leasehold\[server\]"):
        need_extra("server", "json", "no_such_package")
