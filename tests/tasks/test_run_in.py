"""`run_in`, and the limits of a process: what a task may say, and what is refused where it is written."""

from __future__ import annotations

import pytest

from leasehold import Leasehold
from leasehold.domain.checks.numbers import size, size_text
from leasehold.errors import InvalidInput, InvalidTask


@pytest.fixture
def app(tmp_path):
    return Leasehold(f"sqlite:///{tmp_path}/jobs.db")


def plain() -> None: ...


async def coroutine() -> None: ...


def definition(app, task):
    return app.__internals__.tasks.find(task.name)


def test_each_colour_may_name_its_own_place(app):
    assert not definition(app, app.task(run_in="thread")(plain)).runs_on_loop
    assert definition(app, app.task(run_in="loop")(coroutine)).runs_on_loop


@pytest.mark.parametrize(
    ("function", "settings", "field", "text"),
    [
        (plain, {"run_in": "loop"}, "run_in", "use 'thread' or 'process'"),
        (coroutine, {"run_in": "thread"}, "run_in", "use 'loop' or 'process'"),
        (plain, {"run_in": "pool"}, "run_in", "'pool' is not known"),
        (plain, {"memory": "1GB"}, "memory", "add run_in='process'"),
        (coroutine, {"cpu_time": "1m"}, "cpu_time", "add run_in='process'"),
    ],
)  # fmt: skip
def test_a_place_that_does_not_fit_is_refused(app, function, settings, field, text):
    with pytest.raises(InvalidTask, match=text) as caught:
        app.task(**settings)(function)
    assert caught.value.field == field


def test_run_in_is_the_tasks_alone(app):
    with pytest.raises(InvalidInput, match="run_in: is not a setting of a call"):
        app.task(plain).using(run_in="thread")


@pytest.mark.parametrize(
    ("given", "found"),
    [(1000, 1000), ("1000", 1000), ("2k", 2048), ("512MB", 2**29), ("1.5 GiB", 3 * 2**29), ("1tb", 2**40)],
)
def test_a_size_is_a_number_of_bytes_or_text(given, found):
    assert size(given, "memory") == found


@pytest.mark.parametrize("given", ["", "MB", "1 MB or so", "-1", -1, 0, True, None, 1.5, "2**9"])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(InvalidInput, match="memory"):
        size(given, "memory")


def test_a_size_is_written_as_people_do():
    assert [size_text(n) for n in (2**29, 2**30, 1500, 3 * 2**10)] == ["512MB", "1GB", "1500B", "3KB"]


@pytest.mark.parametrize("function", [plain, coroutine])
def test_both_colours_may_run_in_a_process_and_neither_is_on_the_loop_then(app, function):
    found = definition(app, app.task(run_in="process", memory="1GB", cpu_time="1m")(function))
    assert found.in_child_process
    assert not found.runs_on_loop


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"memory": "1MB"}, "memory: '1MB' is out of range; give 128MB or more"),
        ({"memory": "much"}, "memory: 'much' is not a size"),
        ({"cpu_time": 0}, "cpu_time: 0 is out of range"),
        ({"cpu_time": "long"}, "cpu_time: 'long' is not a duration"),
    ],
)
def test_a_limit_that_no_process_can_have_is_refused(app, settings, text):
    with pytest.raises(InvalidInput, match=text):
        app.task(run_in="process", **settings)(plain)
