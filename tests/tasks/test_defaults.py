"""A default that is left out and the same value given are the same to keys, lanes and rates."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from leasehold import Leasehold
from leasehold.errors import InvalidTask


class Region(Enum):
    EU = "eu"
    US = "us"


class Size(BaseModel):
    width: float = 1


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SAME: dict[str, tuple[Any, Any, Any]] = {
    "a choice": (Region, Region.EU, "eu"),
    "a choice by its value": (Region, "eu", Region.EU),
    "a number": (float, 1, 1.0),
    "a number as text": (int, "3", 3),
    "a time": (datetime, NOON, NOON.isoformat()),
    "an optional": (Region | None, None, None),
    "None for a number": (int, None, None),
    "a model": (Size, Size(), {"width": 1}),
}


@pytest.mark.parametrize("case", SAME)
@pytest.mark.parametrize("setting", ["lane", "unique", "rate"])
def test_left_out_and_given_make_the_same_name(case, setting):
    hint, default, given = SAME[case]
    field = {"unique": "unique_key"}.get(setting, setting)

    def bill(value: Any = default) -> None: ...

    bill.__annotations__["value"] = hint
    task = Leasehold("sqlite:///never-opened.db").task(**{setting: "n-{value}"})(bill)
    left_out = task.bind().__plan__.new_job()
    if given is not None:
        assert getattr(task.bind(given).__plan__.new_job(), field) == getattr(left_out, field)
        assert getattr(task.bind(default).__plan__.new_job(), field) == getattr(left_out, field)
    assert left_out.args == "{}", "the default is still the function's"


def test_the_same_key_is_one_job_and_the_same_lane_is_one_lane(app):
    @app.task(unique="{region}", lane="{region}")
    def bill(region: Region = Region.EU) -> None: ...

    first = bill.enqueue()
    assert bill.enqueue(Region.EU) == bill.enqueue("eu") == first
    assert first.__row__.lane == "eu"
    assert bill.enqueue(Region.US).created


def test_an_aliased_argument_fills_its_template_by_its_value(app):
    @app.task(lane="{number}")
    def count(number: Annotated[int, Field(alias="n")] = 3) -> int:
        return number

    by_alias, by_name, left_out = app.enqueue("count", {"n": 4}), count.enqueue(4), count.enqueue()
    assert [job.__row__.lane for job in (by_alias, by_name, left_out)] == ["4", "4", "3"]
    definition = app.__internals__.tasks.find("count")
    assert definition.decode_arguments(by_name.__row__.args) == {"number": 4}


def test_a_default_that_does_not_fit_its_annotation_is_refused_at_registration():
    app = Leasehold("sqlite:///never-opened.db")
    with pytest.raises(InvalidTask, match="does not fit its annotation") as caught:

        @app.task
        def bill(region: Region = "mars") -> None: ...

    assert caught.value.field == "region"


def test_a_mark_as_a_default_is_taken_as_it_is():
    mark = object()
    app = Leasehold("sqlite:///never-opened.db")

    @app.task
    def bill(region: Any = mark) -> None: ...

    assert bill.bind().__plan__.new_job().args == "{}"
