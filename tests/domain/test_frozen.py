"""`@frozen` means what `@dataclass(frozen=True, slots=True)` means."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from leasehold.domain.frozen import frozen


def classes(make: Callable[[type], type], make_kw_only: Callable[[type], type]) -> tuple[Any, Any]:
    @make
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        secret: str = field(default="s", repr=False)
        seen: int = field(default=0, compare=False)
        total: int = field(init=False)
        set: int = field(default=7, init=False)
        missing: list[int] = field(default_factory=list, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

    @make_kw_only
    class Named(Point):
        name: str

    return Point, Named


OURS = classes(frozen, frozen(kw_only=True))
THEIRS = classes(dataclass(frozen=True, slots=True), dataclass(frozen=True, slots=True, kw_only=True))


@frozen
class Pair:
    left: int
    right: str = ""


@frozen
class Nothing: ...


@frozen
class Odd:
    """Names that the compiled method might use itself."""

    set: int = 1
    missing: int = 2
    more: tuple[int, ...] = field(default_factory=tuple)


def test_it_looks_like_a_frozen_dataclass() -> None:
    for ours, theirs in zip(OURS, THEIRS, strict=True):
        extra = {"name": "n"} if ours is OURS[1] else {}
        mine, yours = ours(1, tags=["t"], **extra), theirs(1, tags=["t"], **extra)
        assert repr(mine).rpartition(".")[2] == repr(yours).rpartition(".")[2]
        assert asdict(mine) == asdict(yours)
        assert [one.name for one in fields(mine)] == [one.name for one in fields(yours)]
        assert ours.__slots__ == theirs.__slots__
        assert ours.__match_args__ == theirs.__match_args__
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
        assert not hasattr(mine, "__dict__")


def test_equal_fields_are_equal_and_hash_alike_but_for_those_that_do_not_count() -> None:
    point, _ = OURS
    assert point(1, seen=1) == point(1, seen=2)
    assert point(1) != point(2)
    assert Pair(1) == Pair(1)
    assert Pair(1) != (1, "")
    assert len({Pair(1), Pair(1, ""), Pair(2)}) == 2
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    with pytest.raises(TypeError, match="unhashable"):
        hash(point(1))


def test_nothing_can_be_changed() -> None:
    pair = Pair(1)
    for change in (
        lambda: setattr(pair, "left", 2),
        lambda: setattr(pair, "more", 2),
        lambda: delattr(pair, "left"),
    ):
        with pytest.raises(FrozenInstanceError, match="never changes"):
            change()
    assert replace(pair, left=2) == Pair(2)


def test_a_field_may_have_any_name() -> None:
    assert asdict(Odd()) == {"set": 1, "missing": 2, "more": ()}
    assert asdict(Odd(3, missing=4, more=(5,))) == {"set": 3, "missing": 4, "more": (5,)}


def test_a_default_list_is_a_new_one_each_time() -> None:
    point, _ = OURS
    assert point(1).tags is not point(1).tags


def test_wrong_arguments_are_refused_as_a_function_would() -> None:
    _, named = OURS
    for wrong in (lambda: named(1), lambda: named(1, nothing=2, name="n"), lambda: named()):
        with pytest.raises(TypeError, match="__init__"):
            wrong()


def test_it_survives_pickle_and_copy() -> None:
    for pair in (Pair(1, "r"), Nothing()):
        assert pickle.loads(pickle.dumps(pair)) == pair
        assert copy.deepcopy(pair) == pair


def test_a_method_that_the_class_has_itself_stays() -> None:
    @frozen
    class Loud:
        text: str

        def __repr__(self) -> str:
            return self.text.upper()

    assert repr(Loud("a")) == "A"
