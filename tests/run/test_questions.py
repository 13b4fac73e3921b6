"""Questions in a worker inside this process, on both stores: asked, answered by anybody, used where they were asked."""

from __future__ import annotations

import asyncio
import json
import queue
from datetime import date
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from leasehold import Context, Leasehold, Retry, State, SyncContext
from leasehold.errors import InvalidAnswer, InvalidInput, InvalidState, QuestionExpired
from leasehold.testing import ManualClock
from leasehold.types import Ask, Notification
from tests.workers import burst, until


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Login(BaseModel):
    user: str = Field(min_length=2)
    code: int | None = None
    colour: Colour = Colour.RED


@pytest.fixture
def app_settings(clock: ManualClock) -> dict[str, Any]:
    return {"clock": clock}


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_job_parks_until_it_is_answered_and_its_finished_steps_are_not_repeated(app, colour):
    calls = []

    def look(n: int) -> int:
        calls.append(n)
        return n

    if colour == "async":

        @app.task(name="work")
        async def work(ctx: Context) -> list[object]:
            first = await ctx.step("one", look, 1)
            try:
                answer = await ctx.ask("go", "Shall I go on?")
            except Exception:
                raise AssertionError("a handler that catches exceptions does not catch this") from None
            return [first, answer, await ctx.step("two", look, 2), await ctx.ask("go", "Shall I go on?")]
    else:

        @app.task(name="work")
        def work(ctx: SyncContext) -> list[object]:
            first = ctx.step("one", look, 1)
            try:
                answer = ctx.ask("go", "Shall I go on?")
            except Exception:
                raise AssertionError("a handler that catches exceptions does not catch this") from None
            return [first, answer, ctx.step("two", look, 2), ctx.ask("go", "Shall I go on?")]

    job = work.enqueue()
    worker = burst(app)
    assert worker.attempts.held == {}, "it holds no place in the worker"
    assert job.refresh().state is State.WAITING
    assert job.__row__.worker is None
    (requested,) = app.questions.list()
    assert (requested.job_id, requested.task, requested.key, requested.text) == (
        job.id,
        "work",
        "go",
        "Shall I go on?",
    )
    assert job.answer("go", {"yes": True}, actor="ann").state is State.QUEUED
    assert app.questions.list() == []
    burst(app)
    assert job.result(timeout=0) == [1, {"yes": True}, 2, {"yes": True}]
    assert (calls, job.__row__.attempt, job.__row__.failures) == ([1, 2], 2, 0)
    assert [(e.event, e.actor, e.detail) for e in job.history() if e.event == "answered"] == [
        ("answered", "ann", "go")
    ]


def test_two_questions_in_a_row_are_answered_one_after_the_other(app, clock):
    @app.task
    async def work(ctx: Context) -> str:
        name = await ctx.ask("name", "Who are you?", str)
        age = await ctx.ask("age", f"How old are you, {name}?", int)
        return f"{name} {age}"

    job = work.enqueue()
    burst(app)
    job.answer("name", "Ann")
    clock.advance(1)
    burst(app)
    assert [(q.key, q.text, q.status) for q in job.questions()] == [
        ("name", "Who are you?", "answered"),
        ("age", "How old are you, Ann?", "open"),
    ]
    job.answer("age", 33)
    burst(app)
    assert job.result(timeout=0) == "Ann 33"


def test_tasks_of_a_handler_may_ask_side_by_side(app):
    @app.task
    async def work(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            questions_box = [tasks.create_task(ctx.ask(key, f"{key}?")) for key in "ab"]
        return [task.result() for task in questions_box]

    job = work.enqueue()
    burst(app)
    assert sorted(question.key for question in app.questions.list()) == ["a", "b"], "both are opened at once"
    assert job.answer("b", "B").state is State.WAITING
    assert job.answer("a", "A").state is State.QUEUED
    burst(app)
    assert (job.result(timeout=0), job.attempt) == (["A", "B"], 2)


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_several_questions_are_asked_at_once_and_the_job_goes_on_with_the_last_answer(app, colour):
    received: queue.SimpleQueue[Notification] = queue.SimpleQueue()
    app.on("question")(received.put)
    questions = {
        "name": "Who are you?",
        "age": ("How old are you?", int),
        "code": Ask("Your code, please", str, secret=True, timeout=3600),
    }
    if colour == "async":

        @app.task(name="work")
        async def work(ctx: Context) -> list[object]:
            answers = await ctx.ask_all(questions)
            return [answers, await ctx.ask("age", "How old are you?", int), await ctx.ask_all({})]
    else:

        @app.task(name="work")
        def work(ctx: SyncContext) -> list[object]:
            answers = ctx.ask_all(questions)
            return [answers, ctx.ask("age", "How old are you?", int), ctx.ask_all({})]

    job = work.enqueue()
    burst(app)
    assert sorted(received.get(timeout=10).data["key"] for _ in range(3)) == ["age", "code", "name"]
    listed = {q.key: (q.text, q.secret, q.expires_at is not None) for q in app.questions.list()}
    assert listed == {
        "name": ("Who are you?", False, False),
        "age": ("How old are you?", False, False),
        "code": ("Your code, please", True, True),
    }
    assert "age: How old are you?" in str(job.explain())
    with pytest.raises(InvalidAnswer):
        job.answer("age", "old")
    assert job.answer("code", "s3cret").state is State.WAITING
    assert job.answer("age", 33).state is State.WAITING
    assert [q.key for q in app.questions.list()] == ["name"]
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.WAITING, 1)
    assert job.answer("name", "Ann").state is State.QUEUED
    burst(app)
    assert job.result(timeout=0) == [{"name": "Ann", "age": 33, "code": "s3cret"}, 33, {}]
    assert job.attempt == 2


def test_one_of_several_questions_that_runs_out_is_told_and_the_other_answers_are_kept(app, clock):
    @app.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.ask_all({"slow": Ask("Ever?", timeout=60), "quick": "Now?"})
        except QuestionExpired as expired:
            return f"{expired.key} expired, {await ctx.ask('quick', 'Now?')}"
        return "answered"

    job = work.enqueue()
    burst(app)
    clock.advance(60)
    app.__internals__.store.expire()
    assert job.refresh().state is State.WAITING, "the other one is still open"
    assert job.answer("quick", "yes").state is State.QUEUED
    burst(app)
    assert job.result(timeout=0) == "slow expired, yes"


def test_an_answer_that_does_not_fit_its_type_is_asked_for_again_alone(app):
    @app.task
    async def work(ctx: Context) -> str:
        answers = await ctx.ask_all({"day": ("When?", date), "caller": "Who?"})
        return f"{answers['caller']} on {answers['day']}"

    job = work.enqueue()
    burst(app)
    job.answer("day", "not a date")
    job.answer("caller", "Ann")
    burst(app)
    (again,) = app.questions.list()
    assert (again.key, "did not fit" in again.text) == ("day", True)
    job.answer("day", "2026-11-17")
    burst(app)
    assert job.result(timeout=0) == "Ann on 2026-11-17"


@pytest.mark.parametrize("wrong", [7, ["q"], {"q": 7}, {"q": ("text",)}, {"": "text"}, {"q": Ask(" ")}])
def test_questions_that_are_none_are_refused_in_the_run(app, wrong):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.ask_all(wrong)

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.FAILED, 1)
    assert "InvalidInput" in job.error


def test_a_step_may_ask_and_is_run_again_with_the_answer(app):
    @app.task
    async def work(ctx: Context) -> str:
        async def login() -> str:
            await ctx.spend(tokens=1)
            return f"in with {await ctx.ask('code', 'Which code?', str)}"

        return await ctx.step("login", login, retry=Retry(max_attempts=5, backoff=0))

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.WAITING
    job.answer("code", "123")
    burst(app)
    assert job.result(timeout=0) == "in with 123"
    assert len(job.spending()) == 2


def test_an_answer_comes_back_through_the_type_that_was_asked_for(app):
    @app.task
    async def work(ctx: Context) -> str:
        login = await ctx.ask("login", "Log in", Login)
        return f"{login.user} {login.code} {login.colour.name}"

    job = work.enqueue()
    burst(app)
    (requested,) = app.questions.list(task="work")
    assert "$defs" in json.loads(requested.schema)
    for wrong, path in [
        ("Ann", "$ is not of type object"),
        ({}, "$.user is missing"),
        ({"user": "A"}, "$.user is shorter than 2"),
        ({"user": "Ann", "code": "x"}, "$.code fits none of the alternatives"),
        ({"user": "Ann", "colour": "green"}, "$.colour is not one of 'red', 'blue'"),
    ]:
        with pytest.raises(InvalidAnswer) as refused:
            job.answer("login", wrong)
        assert path in str(refused.value)
        assert "answer again" in str(refused.value)
    assert job.refresh().state is State.WAITING
    assert [q.status for q in job.questions()] == ["open"]
    job.answer("login", {"user": "Ann", "colour": "blue"})
    burst(app)
    assert job.result(timeout=0) == "Ann None BLUE"


def test_an_answer_that_fits_the_schema_and_not_the_type_is_asked_for_again(app):
    @app.task
    async def work(ctx: Context) -> str:
        return (await ctx.ask("day", "Which day?", date)).strftime("%A")

    job = work.enqueue()
    burst(app)
    job.answer("day", "tomorrow")
    burst(app)
    assert job.refresh().state is State.WAITING
    (requested,) = app.questions.list()
    assert requested.text.startswith("Which day?\n(The last answer did not fit: Input should be a valid date")
    job.answer("day", "2026-01-05")
    burst(app)
    assert job.result(timeout=0) == "Monday"


def test_a_json_schema_is_taken_as_it_is_and_one_that_cannot_be_checked_is_refused(app):
    @app.task(retry=Retry(max_attempts=3, backoff=0))
    async def work(ctx: Context, schema: dict) -> object:
        return await ctx.ask("q", "?", schema)

    good = work.enqueue({"type": "integer", "minimum": 3, "format": "anything"})
    bad = work.enqueue({"type": "integer", "contains": 3})
    burst(app)
    assert bad.refresh().state is State.FAILED
    assert bad.__row__.attempt == 1
    assert "'contains', which is not known" in bad.error
    with pytest.raises(InvalidAnswer, match="less than 3"):
        good.answer("q", 2)
    good.answer("q", 3)
    burst(app)
    assert good.result(timeout=0) == 3


@pytest.mark.parametrize(
    "arguments", [("", "?"), ("q", " "), ("q", "?", asyncio.Event), ("q", "?", None, False, 0)]
)
def test_a_question_that_cannot_be_asked_fails_its_job_without_a_retry(app, arguments):
    @app.task(retry=Retry(max_attempts=3, backoff=0))
    async def work(ctx: Context) -> object:
        return await ctx.ask(*arguments)

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.__row__.attempt) == (State.FAILED, 1)
    assert "InvalidInput" in job.error


def test_an_answer_to_a_paused_job_is_kept_and_used_when_it_is_resumed(app):
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.ask("q", "?")

    job = work.enqueue()
    burst(app)
    job.pause("lunch")
    assert [q.key for q in app.questions.list()] == ["q"], "it may be answered all the same"
    assert job.answer("q", "yes").state is State.PAUSED
    burst(app)
    assert job.refresh().state is State.PAUSED
    job.resume()
    burst(app)
    assert job.result(timeout=0) == "yes"


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_question_that_nobody_answers_in_time_raises_in_the_handler(app, clock, colour):
    if colour == "async":

        @app.task(name="work")
        async def work(ctx: Context) -> str:
            try:
                return await ctx.ask("q", "?", timeout="10m")
            except QuestionExpired as expired:
                return f"nobody answered {expired.key}"
    else:

        @app.task(name="work")
        def work(ctx: SyncContext) -> str:
            try:
                return ctx.ask("q", "?", timeout="10m")
            except QuestionExpired as expired:
                return f"nobody answered {expired.key}"

    job = work.enqueue()
    burst(app)
    assert (job.questions()[0].expires_at - job.questions()[0].asked_at).total_seconds() == 600
    clock.advance(599)
    assert app.__internals__.store.expire() == []
    clock.advance(1)
    with pytest.raises(InvalidState, match="'q' has expired"):
        job.answer("q", "too late")
    (moved,) = app.__internals__.store.expire()
    assert (moved.id, moved.state) == (job.id, State.QUEUED)
    with pytest.raises(InvalidState):
        job.answer("q", "too late")
    burst(app)
    assert job.result(timeout=0) == "nobody answered q"
    assert [q.status for q in job.questions()] == ["expired"]
    assert "question_expired" in [entry.event for entry in job.history()]


def test_an_unanswered_question_that_the_handler_does_not_expect_fails_the_job_like_any_error(app, clock):
    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.ask("q", "?", timeout=60)

    job = work.enqueue()
    burst(app)
    clock.advance(60)
    app.__internals__.store.expire()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert "was not answered in time" in job.error


def test_a_question_of_a_paused_job_expires_without_moving_it_and_its_time_is_not_begun_again(app, clock):
    @app.task
    async def work(ctx: Context) -> str:
        try:
            return await ctx.ask("q", "?", timeout=100)
        except QuestionExpired:
            return "expired"

    first, second = work.enqueue(), work.enqueue()
    burst(app)
    first.pause()
    second.pause()
    clock.advance(60)
    second.resume()
    burst(app)  # it asks again
    assert second.refresh().state is State.WAITING
    clock.advance(40)
    assert {job.id for job in app.__internals__.store.expire()} == {second.id}
    assert first.refresh().state is State.PAUSED
    first.resume()
    burst(app)
    assert [job.result(timeout=0) for job in (first, second)] == ["expired", "expired"]


def test_a_secret_answer_is_shown_nowhere_and_wiped_at_the_end(app, backend):
    seen = []

    @app.task
    async def work(ctx: Context) -> None:
        seen.append(await ctx.ask("password", "?", secret=True))
        if ctx.attempt == 2:
            raise ConnectionError

    done, cancelled = work.using(retry=Retry(backoff=0)).enqueue(), work.enqueue()
    burst(app)
    for job in (done, cancelled):
        job.answer("password", "hunter2")
    stored = "SELECT CAST(answer AS text) FROM leasehold.question WHERE job_id = ?"
    assert backend.query(stored, done.id) == [('"hunter2"',)]
    assert "hunter2" not in repr(
        [job.questions() for job in (done, cancelled)] + [done.history(), done.__row__]
    )
    cancelled.cancel()
    burst(app)
    assert done.refresh().state is State.SUCCEEDED
    assert seen == ["hunter2", "hunter2"]
    for job in (done, cancelled):
        (question,) = job.questions()
        assert (question.status, question.answer, question.secret) == ("answered", None, True)
        assert backend.query(stored, job.id) == [(None,)]


def test_a_refused_secret_is_not_repeated_in_the_refusal(app):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.ask("pin", "?", {"type": "string", "pattern": "^[0-9]{4}$"}, secret=True)

    job = work.enqueue()
    burst(app)
    with pytest.raises(InvalidAnswer) as refused:
        job.answer("pin", "hunter2")
    assert "hunter2" not in str(refused.value)


def test_a_cancelled_job_asks_nothing_any_more(app):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.ask("q", "?")

    job = work.enqueue()
    burst(app)
    job.cancel()
    assert app.questions.list() == []
    assert [q.status for q in job.questions()] == ["closed"]
    with pytest.raises(InvalidState):
        job.answer("q", 1)


def test_the_inbox_is_filtered_and_in_the_order_of_asking(app, clock):
    @app.task
    async def one(ctx: Context) -> None:
        await ctx.ask("q", "?")

    @app.task(queue="other")
    async def two(ctx: Context) -> None:
        await ctx.ask("q", "?")

    jobs = []
    for task in (one.using(group="g"), two, one, two.using(group="g")):
        jobs.append(task.enqueue())
        burst(app, queues=["default", "other"])
        clock.advance(1)
    a, b, c, d = (job.id for job in jobs)

    def listed(**filter):
        return [question.job_id for question in app.questions.list(**filter)]

    assert listed() == [a, b, c, d]
    assert listed(group="g") == [a, d]
    assert listed(queue="other") == [b, d]
    assert listed(task="one") == [a, c]
    assert listed(task="one", group="g") == [a]
    assert listed(limit=2) == [a, b]
    with pytest.raises(InvalidInput, match="limit"):
        app.questions.list(limit=0)
    assert [q.job_id for q in asyncio.run(app.questions.alist(task="two"))] == [b, d]
    app.questions.answer(b, "q", None, actor="bob")
    asyncio.run(app.questions.aanswer(d, "q", None))
    assert listed() == [a, c]


def test_a_hook_hears_of_a_question_once_the_job_has_parked(app):
    received: queue.SimpleQueue[tuple[Notification, State]] = queue.SimpleQueue()

    @app.on("question")
    def notify(event: Notification) -> None:
        received.put((event, app.__internals__.store.get(event.job_id).state))

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.ask("q", "Which one?", {"type": "integer"})

    job = work.using(group="g").enqueue()
    burst(app)
    event, state = received.get(timeout=10)
    assert (event.name, event.job_id, event.task, event.detail) == ("question", job.id, "work", "Which one?")
    assert event.data == {
        "key": "q",
        "text": "Which one?",
        "schema": {"type": "integer"},
        "secret": False,
        "group": "g",
    }
    assert state is State.WAITING
    assert received.empty()


def test_a_hook_hears_nothing_of_a_job_that_was_cancelled_while_it_asked(app):
    received = []
    app.on("question")(received.append)

    @app.task
    async def work(ctx: Context) -> None:
        await asyncio.to_thread(app.get(ctx.job_id).cancel)
        await ctx.ask("q", "?")

    @app.task
    async def later(ctx: Context) -> None:
        await ctx.ask("q", "?")

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.CANCELLED
    later.enqueue()
    burst(app)  # hooks are called one after the other: what is heard of this one comes after
    assert [event.task for event in received] == ["later"]


def test_a_waiting_job_keeps_its_lane_and_no_worker(app):
    order = []

    @app.task(lane="l")
    async def work(ctx: Context, n: int) -> None:
        if n == 1:
            await ctx.ask("q", "?")
        order.append(n)

    first, _ = work.enqueue(1), work.enqueue(2)
    burst(app)
    assert order == []
    first.answer("q", 1)
    burst(app)
    assert order == [1, 2]


def test_an_answer_wakes_a_sleeping_worker(backend):
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task
        async def work(ctx: Context) -> str:
            return await ctx.ask("q", "?")

        async def run() -> str:
            job = work.enqueue()
            async with app.worker(retention=None, poll=60.0):
                await until(lambda: job.refresh().state is State.WAITING)
                await job.aanswer("q", "yes")
                return await job.aresult(timeout=20)

        assert asyncio.run(run()) == "yes"


def test_the_sweep_of_a_worker_lets_an_unanswered_job_go_on(backend):
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task
        async def work(ctx: Context) -> str:
            try:
                return await ctx.ask("q", "?", timeout=0.2)
            except QuestionExpired:
                return "expired"

        async def run() -> str:
            async with app.worker(retention=None, poll=60.0, sweep=0.1):
                return await work.enqueue().aresult(timeout=20)

        assert asyncio.run(run()) == "expired"
