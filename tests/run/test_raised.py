"""What a handler's exception says about its job: groups are looked into, causes are kept."""

from __future__ import annotations

import asyncio

import pytest

from leasehold import Context, Fail, Pause, Retry, Snooze, State, SyncContext
from leasehold.domain.outcome import Breached, Failure, Snoozed, Stopped
from leasehold.errors import InvalidInput, OverBudget
from leasehold.run.exceptions import describe
from leasehold.run.exceptions import outcome_of as judge
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import TaskSettings
from tests.workers import burst


class Permanent(Exception):
    pass


async def raising(error: BaseException) -> None:
    raise error


def group(*errors: Exception) -> ExceptionGroup:
    return ExceptionGroup("several", errors)


# -- retry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "error", "covered"),
    [
        (Retry(), group(ValueError(), KeyError()), True),
        (Retry(never=(Permanent,)), group(ValueError(), Permanent()), False),
        (Retry(never=(Permanent,)), group(ValueError(), group(Permanent())), False),
        (Retry(never=(ExceptionGroup,)), group(ValueError()), False),
        (Retry(on=(TimeoutError,)), group(TimeoutError(), group(TimeoutError())), True),
        (Retry(on=(TimeoutError,)), group(TimeoutError(), ValueError()), False),
        (Retry(on=(ExceptionGroup,)), group(ValueError()), True),
        (Retry(), BaseExceptionGroup("several", [ValueError(), SystemExit(1)]), False),
        (Retry(on=(TimeoutError,)), TimeoutError(), True),
    ],
)
def test_a_group_is_never_retried_for_one_leaf_and_covered_by_all(retry, error, covered):
    assert retry.covers(error) is covered


def test_what_is_never_retried_is_not_retried_out_of_a_task_group(app):
    @app.task(retry=Retry(max_attempts=3, backoff=0, never=(Permanent,)))
    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(raising(Permanent("gone for good")))

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.FAILED, 1)
    assert "gone for good" in job.error.splitlines()[0]


# -- signals in a group ------------------------------------------------------------------------------------------------


def outcome_of(error: BaseException):
    return judge(error, TaskDefinition(lambda: None, "work", TaskSettings()))


def test_what_a_child_task_asks_for_is_asked_by_the_handler():
    assert outcome_of(group(Snooze(7))) == Snoozed(7.0)
    assert outcome_of(group(group(Pause("look")))) == Stopped("look", pause=True)
    assert isinstance(outcome_of(group(ValueError(), OverBudget("id", "job", "id", "t", 1, 2))), Breached)
    for last_word in (Fail("no"), InvalidInput("a", "b", "c")):
        found = outcome_of(group(ValueError("x"), last_word))
        assert isinstance(found, Failure)
        assert found.final
    # Something went wrong beside it: that is a failure, and may be tried again.
    mixed = outcome_of(group(Snooze(7), ValueError("x")))
    assert isinstance(mixed, Failure)
    assert not mixed.final


# -- the text ----------------------------------------------------------------------------------------------------------


def caught(function) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def inner() -> None:
    raise KeyError("order 7")


def with_cause() -> None:
    try:
        inner()
    except KeyError as error:
        raise ValueError("no such order") from error


def test_the_first_line_is_the_error_and_the_cause_stands_below_it():
    text = describe(caught(with_cause))
    assert text.splitlines()[0] == "ValueError: no such order"
    before, after = text.split("caused by KeyError: 'order 7'")
    assert "in with_cause" in before
    assert "in inner" in after


def test_what_was_being_handled_is_told_unless_it_was_suppressed():
    def handling() -> None:
        try:
            inner()
        except KeyError:
            raise ValueError("worse")  # noqa: B904 (the case in question)

    def suppressing() -> None:
        try:
            inner()
        except KeyError:
            raise ValueError("worse") from None

    assert "raised while handling KeyError: 'order 7'" in describe(caught(handling))
    assert "order 7" not in describe(caught(suppressing))


def test_the_first_line_of_a_group_names_what_is_in_it():
    def several() -> None:
        raise group(caught(with_cause), group(caught(inner)))

    text = describe(caught(several))
    first = text.splitlines()[0]
    assert first.startswith("ExceptionGroup: several (2 sub-exceptions): ValueError: no such order | ")
    assert first.endswith("KeyError: 'order 7'")
    assert "caused by KeyError: 'order 7'" in text
    assert "in several" in text
    assert text.count("in inner") == 2


def test_a_circle_of_causes_and_a_deep_chain_come_to_an_end():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert describe(first).count("caused by") == 1
    error: BaseException = ValueError("root")
    for number in range(5000):
        outer = ValueError(f"{number} " + "x" * 100)
        outer.__cause__ = error
        error = outer
    assert len(describe(error)) < 40_000


def test_a_crowd_in_a_group_and_a_deep_recursion_keep_what_matters():
    crowd = group(*(ValueError(f"{n} " + "y" * 500) for n in range(10_000)))
    assert len(describe(crowd)) < 40_000
    assert "9,995 more" in describe(crowd).splitlines()[0]

    def dive(n: int) -> None:
        if n == 0:
            inner()
        (lambda: dive(n - 1))()

    text = describe(caught(lambda: dive(200)))
    assert "in inner" in text
    assert len(text) < 16_000


@pytest.mark.parametrize(
    ("keep", "named"),
    [
        (lambda ctx, value: ctx.emit("page", value), "update 'page': too large"),
        (lambda ctx, value: ctx.checkpoint(value), "checkpoint: too large"),
        (lambda ctx, value: ctx.step("fetch", lambda: value), "step 'fetch': too large"),
        (lambda ctx, value: ctx.step("fetch", lambda: value, durable="batch"), "step 'fetch': too large"),
    ],
    ids=["an update", "a checkpoint", "a step", "a step of a batch"],
)
def test_what_is_too_large_to_be_kept_is_named(app, keep, named):
    @app.task(retry=Retry(max_attempts=3, backoff=0))
    def work(ctx: SyncContext) -> None:
        keep(ctx, "x" * 1_900_000)

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.FAILED, 1)
    assert named in job.error.partition("\n")[0]
    assert "result" not in job.error.partition("\n")[0]


def test_our_own_frames_are_left_out(app):
    @app.task(name="stepped", retry=Retry(max_attempts=1))
    async def stepped(ctx: Context) -> None:
        def stepping() -> None:
            raise ValueError("in a step")

        await ctx.step("s", stepping)

    job = stepped.enqueue()
    burst(app)
    assert "in stepping" in job.refresh().error
    assert "in stepped" in job.error
    assert "leasehold/run" not in job.error
