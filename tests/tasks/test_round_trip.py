"""What cannot come back as it went in is refused at the call; what can is not looked at twice."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    SecretStr,
    computed_field,
    field_serializer,
)
from typing_extensions import TypedDict

from leasehold import Context, Leasehold, State, SyncContext, errors
from leasehold.errors import InvalidInput, NotSerializable
from tests.workers import burst


class Region(StrEnum):
    EU = "eu"


class Corner(Enum):
    LOW = (0, 0)


class Login(BaseModel):
    user: str
    password: SecretStr


class Note(BaseModel):
    text: str
    draft: str = Field(default="", exclude=True)


class OneWay(BaseModel):
    text: str = Field(serialization_alias="body")


class OtherWay(BaseModel):
    text: str = Field(validation_alias="body")


class BothWays(BaseModel):
    text: str = Field(alias="body")


class Area(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int

    @computed_field
    @property
    def size(self) -> int:
        return self.side**2


class Rounded(BaseModel):
    amount: float

    @field_serializer("amount")
    def _round(self, amount: float) -> float:
        return round(amount)


class Page(BaseModel):
    url: str


class DeepPage(Page):
    depth: int = 1


class Stamped(BaseModel):
    number: uuid.UUID = Field(default_factory=uuid.uuid4)
    made_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Point3(Point):
    z: int = 0


def up(n: int) -> int:
    return n + 1


class Address(TypedDict):
    street: str


LOST: dict[str, tuple[Any, Any, str]] = {
    "a secret": (SecretStr, SecretStr("hunter2"), "work.value"),
    "a secret in a model": (Login, Login(user="ann", password=SecretStr("hunter2")), "work.value.password"),
    "a secret in a list": (list[SecretStr], [SecretStr("hunter2")], "work.value[0]"),
    "an excluded field": (Note, Note(text="a", draft="b"), "work.value.draft"),
    "a serialization alias": (OneWay, OneWay(text="a"), "work.value.text"),
    "a validation alias": (OtherWay, OtherWay.model_validate({"body": "a"}), "work.value.body"),
    "a computed field where extras are forbidden": (Area, Area(side=2), "work.value.size"),
    "a serializer that rounds": (Rounded, Rounded(amount=1.4), "work.value.amount"),
    "a field of a subclass": (Page, DeepPage(url="u"), "work.value"),
    "a field of a dataclass's subclass": (Point, Point3(1, 2, 3), "work.value"),
    "a tuple as a key": (dict[tuple[int, int], str], {(1, 2): "a"}, "work.value.1,2.[key]"),
    "JSON in JSON": (Json[list[int]], "[1]", "work.value"),
    "bytes that are no UTF-8": (bytes, b"\xff", "work"),
    "a validator that adds one": (Annotated[int, AfterValidator(up)], 1, "work.value"),
    "text that reads as a time": (datetime | str, "2026-01-01T00:00:00Z", "work.value"),
    "a secret without an annotation": (Any, SecretStr("hunter2"), "work.value"),
    "a time without an annotation": (Any, {"at": [date(2026, 1, 1)]}, "work.value.at[0]"),
    "a number as a key without an annotation": (dict, {1: "a"}, "work.value"),
    "a model without an annotation": (object, Page(url="u"), "work.value"),
}
KEPT: dict[str, tuple[Any, Any]] = {
    "numbers": (float, 1),
    "text or number": (int | str, "3"),
    "a name of a choice": (Region, Region.EU),
    "a choice by a tuple": (Corner | None, None),
    "a literal": (Literal["a", 1], "a"),
    "times": (
        tuple[datetime, date, timedelta],
        (datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), timedelta(1)),
    ),
    "exact numbers": (dict[str, Decimal], {"a": Decimal("1.10")}),
    "a UUID": (uuid.UUID, uuid.UUID(int=1)),
    "a path": (Path, Path("/tmp")),
    "sets": (set[int], {1, 2}),
    "numbers as keys": (dict[int, str], {1: "a"}),
    "a model": (Page, Page(url="u")),
    "a model's subclass, said so": (DeepPage | Page, DeepPage(url="u", depth=2)),
    "a model with its own ids": (Stamped, Stamped()),
    "an excluded field that was left alone": (Note, Note(text="a")),
    "an alias of both directions": (BothWays, BothWays(body="a")),
    "a dataclass": (Point, Point(1, 2)),
    "a typed dict": (Address, {"street": "s"}),
    "bytes that are text": (bytes, b"abc"),
    "a tuple without an annotation": (Any, ("a", [1, {"b": None}])),
}


def task_of(hint: Any):
    def work(value: hint) -> None: ...

    work.__annotations__["value"] = hint
    return Leasehold("sqlite:///never-opened.db").task(work)


def read(task, text: str) -> Any:
    return task.bind(None).__plan__.definition.decode_arguments(text)["value"]


@pytest.mark.parametrize("case", LOST)
def test_an_argument_that_cannot_come_back_is_refused_naming_the_part(case):
    hint, value, field = LOST[case]
    with pytest.raises(NotSerializable) as caught:
        task_of(hint).bind(value).__plan__.new_job()
    assert caught.value.field == field
    assert caught.value.remedy
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("case", KEPT)
def test_an_argument_that_comes_back_is_taken(case):
    hint, value = KEPT[case]
    task = task_of(hint)
    back = read(task, task.bind(value).__plan__.new_job().args)
    assert back == (["a", [1, {"b": None}]] if hint is Any else value)


def test_a_lane_is_refused_what_cannot_come_back_too():
    app = Leasehold("sqlite:///never-opened.db")

    @app.task(lane="{user}")
    def enter(user: str, password: SecretStr) -> None: ...

    with pytest.raises(NotSerializable, match=r"^enter\.password: "):
        enter.bind("ann", SecretStr("hunter2")).__plan__.new_job()


seen: list[int] = []


def see(number: int) -> int:
    seen.append(number)
    return number


def test_plain_annotations_are_read_once_and_others_twice():
    app = Leasehold("sqlite:///never-opened.db")

    @app.task
    def plain(a: int, b: str, c: list[dict[str, Region]] | None = None) -> None: ...

    @app.task
    def watched(number: Annotated[int, AfterValidator(see)]) -> None: ...

    assert plain.bind(1, "x").__plan__.definition._doubted == {}
    seen.clear()
    watched.bind(1).__plan__.new_job()
    assert seen == [1, 1]


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_result_that_does_not_fit_its_annotation_fails_the_run_for_good(app):
    @app.task
    def count(what: str) -> int:
        return {"text": "abc", "nothing": None}[what]

    jobs = [count.enqueue("text"), count.enqueue("nothing")]
    burst(app)
    for job in jobs:
        assert job.refresh().state is State.FAILED
        assert job.attempt == 1, "the same function would return the same again"
        assert job.error.startswith(
            "the result is not serializable: count.result: does not fit the return annotation"
        )


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_result_that_cannot_come_back_fails_the_run(app, colour):
    if colour == "async":

        @app.task
        async def enter() -> Login:
            return Login(user="ann", password=SecretStr("hunter2"))
    else:

        @app.task
        def enter() -> Login:
            return Login(user="ann", password=SecretStr("hunter2"))

    job = enter.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert job.error.startswith("the result is not serializable: enter.result.password: would not come back")


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_step_whose_result_cannot_come_back_raises_before_it_is_stored(app, backend, colour):
    def find() -> Page:
        return DeepPage(url="u", depth=7)

    if colour == "async":

        @app.task
        async def work(ctx: Context) -> None:
            await ctx.step("find", find)
    else:

        @app.task
        def work(ctx: SyncContext) -> None:
            ctx.step("find", find)

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert "step 'find': would not come back as it is" in job.error
    assert backend.query("SELECT count(*) FROM leasehold.step") == [(0,)]


def test_a_result_that_fits_after_coercion_is_stored_as_what_it_becomes(app):
    @app.task
    def find() -> Page:
        return {"url": "u"}

    @app.task
    def alias() -> BothWays:
        return BothWays(body="b")

    found, aliased = find.enqueue(), alias.enqueue()
    burst(app)
    assert found.result(timeout=5) == Page(url="u")
    assert aliased.result(timeout=5) == BothWays(body="b")


def test_a_result_read_after_its_annotation_has_changed_says_so(app, backend):
    @app.task(name="count")
    def as_text() -> str:
        return "abc"

    job = as_text.enqueue()
    burst(app)
    with Leasehold(backend.url, schema=backend.schema) as later:

        @later.task(name="count")
        def as_number() -> int:
            return 1

        with pytest.raises(errors.UnreadableResult, match="has changed since") as caught:
            later.get(job.id).result(timeout=5)
        assert caught.value.job_id == job.id
        assert not isinstance(caught.value, InvalidInput)
    assert json.loads(job.refresh().__row__.result) == "abc"
