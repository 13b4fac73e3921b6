"""`leasehold.contrib.opentelemetry`: a span for every enqueue, one for every attempt, and a link between them."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import weakref
from contextlib import closing, nullcontext

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from leasehold import Context, Fail, Leasehold, Retry, Snooze, State, SyncContext
from leasehold.contrib.opentelemetry import instrument
from leasehold.errors import DuplicateJob
from leasehold.http import create_app
from tests.backends import Backend
from tests.connections import file_of
from tests.worker import process_tasks
from tests.workers import burst, until


class Gone(Exception):
    """Unlike those of Python itself it can be referred to weakly."""


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("shop")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def of_kind(self, kind: str, name: str = "process default") -> ReadableSpan:
        (span,) = (span for span in self.named(name) if span.attributes["leasehold.task"] == kind)
        return span


@pytest.fixture
def spans(app: Leasehold) -> Spans:
    found = Spans()
    instrument(app, tracer_provider=found.provider)
    return found


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def trace_of(backend: Backend, job) -> str | None:
    return backend.query("select trace from leasehold.jobs where id = ?", job.id)[0][0]


def test_an_enqueue_is_a_producer_span_and_an_attempt_a_consumer_span_with_a_link_to_it(app, spans, backend):
    @app.task(queue="q")
    def work(n: int) -> None: ...

    with spans.tracer.start_as_current_span("POST /orders") as request:
        job = work.enqueue(1)
    burst(app, queues="q")
    sent, done = spans.one("enqueue q"), spans.one("process q")
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent.span_id == request.get_span_context().span_id
    assert dict(sent.attributes) == {
        "messaging.system": "leasehold",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
        "messaging.message.id": job.id,
        "leasehold.task": "work",
    }
    assert done.kind is SpanKind.CONSUMER
    assert done.parent is None
    assert done.get_span_context().trace_id != sent.get_span_context().trace_id
    assert linked(done) == [sent.get_span_context().span_id]
    assert done.links[0].context.trace_id == sent.get_span_context().trace_id
    assert dict(done.attributes) == {
        "messaging.system": "leasehold",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "q",
        "messaging.message.id": job.id,
        "leasehold.task": "work",
        "leasehold.attempt": 1,
        "leasehold.outcome": "succeeded",
    }
    assert done.status.status_code is StatusCode.UNSET
    assert trace_of(backend, job) == traceparent(sent)


def test_spans_of_both_colours_of_handlers_are_children_of_their_attempt(app, spans):
    @app.task
    async def on_loop() -> None:
        with spans.tracer.start_as_current_span("inside on_loop"):
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: spans.tracer.start_span("deeper").end())

    @app.task
    def in_thread() -> None:
        spans.tracer.start_span("inside in_thread").end()

    @app.task
    def after() -> None:
        spans.tracer.start_span("inside after").end()

    for task in (on_loop, in_thread, after):
        task.enqueue()

    async def serve() -> None:
        # What is current where a worker is started is none of its jobs' business.
        with spans.tracer.start_as_current_span("main"):
            await app.worker(burst=True, threads=1, retention=None).run()

    asyncio.run(serve())
    for kind in ("on_loop", "in_thread", "after"):
        process, inside = spans.of_kind(kind), spans.one(f"inside {kind}")
        assert process.parent is None
        assert inside.parent.span_id == process.get_span_context().span_id
    assert spans.one("deeper").parent.span_id == spans.of_kind("on_loop").get_span_context().span_id


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_failed_attempt_has_the_exception_and_the_next_one_a_span_of_its_own(app, spans, colour):
    def fail() -> None:
        raise ValueError("no such order\nat all")

    async def fail_on_loop() -> None:
        fail()

    task = app.task(retry=Retry(max_attempts=2, backoff="10ms"))(fail if colour == "plain" else fail_on_loop)
    job = task.enqueue()

    async def main() -> None:
        async with app.worker(retention=None, poll=0.02):
            await until(lambda: job.refresh().state is State.FAILED)

    asyncio.run(main())
    first, second = spans.named("process default")
    assert [span.attributes["leasehold.attempt"] for span in (first, second)] == [1, 2]
    assert first.get_span_context().trace_id != second.get_span_context().trace_id
    assert linked(first) == linked(second) == [spans.one("enqueue default").get_span_context().span_id]
    for span in (first, second):
        assert span.attributes["leasehold.outcome"] == "failed"
        assert span.attributes["error.type"] == "ValueError"
        assert (span.status.status_code, span.status.description) == (
            StatusCode.ERROR,
            "ValueError: no such order",
        )
        (event,) = span.events
        assert event.name == "exception"
        assert event.attributes["exception.type"] == "ValueError"
        assert "in fail" in event.attributes["exception.stacktrace"]


def test_what_is_no_failure_is_no_error(app, spans):
    @app.task
    async def snoozes() -> None:
        raise Snooze(3600)

    @app.task
    async def asks(ctx: Context) -> None:
        await ctx.ask("k", "May I?")

    @app.task
    async def is_cancelled(ctx: Context) -> None:
        await (await app.aget(ctx.job_id)).acancel("enough")
        await asyncio.sleep(60)

    @app.task
    def is_paused(ctx: SyncContext) -> None:
        app.get(ctx.job_id).interrupt()
        ctx.wait(60)

    @app.task(retry=Retry(max_attempts=1), timeout=0.1)
    async def hangs() -> None:
        await asyncio.sleep(60)

    @app.task
    async def gives_up() -> None:
        raise Fail("never")

    @app.task
    async def completes(ctx: Context) -> None:
        async with ctx.complete():
            pass
        raise ValueError("too late to matter")

    for task in (snoozes, asks, is_cancelled, is_paused, hangs, gives_up, completes):
        task.enqueue()
    burst(app)
    found = {
        span.attributes["leasehold.task"]: (span.attributes["leasehold.outcome"], span.status.status_code)
        for span in spans.named("process default")
    }
    assert found == {
        "snoozes": ("snoozed", StatusCode.UNSET),
        "asks": ("waiting", StatusCode.UNSET),
        "is_cancelled": ("cancelled", StatusCode.UNSET),
        "is_paused": ("paused", StatusCode.UNSET),
        "hangs": ("timed_out", StatusCode.ERROR),
        "gives_up": ("failed", StatusCode.ERROR),
        "completes": ("succeeded", StatusCode.UNSET),
    }


def test_a_sensitive_value_is_in_no_span(app, spans):
    @app.task(sensitive=("key",), retry=Retry(max_attempts=1))
    def work(key: str) -> None:
        raise ValueError(f"bad key {key}")

    work.enqueue("s3cr3t-value")
    burst(app)
    span = spans.one("process default")
    assert span.status.description == "ValueError: bad key [hidden]"
    (event,) = span.events
    assert event.attributes["exception.message"] == "ValueError: bad key [hidden]"
    assert "s3cr3t-value" not in span.to_json()


# -- ways to enqueue ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [3, 60], ids=["few", "many"])
def test_many_are_one_span_and_each_has_its_link(app, spans, backend, count):
    @app.task
    async def work(n: int) -> None: ...

    jobs = work.enqueue_many({"n": n} for n in range(count))
    sent = spans.one("enqueue default")
    assert sent.attributes["messaging.batch.message_count"] == count
    assert sent.attributes["leasehold.task"] == "work"
    assert "messaging.message.id" not in sent.attributes
    assert {row[0] for row in backend.query("select trace from leasehold.job")} == {traceparent(sent)}
    burst(app)
    done = spans.named("process default")
    assert {span.attributes["messaging.message.id"] for span in done} == {job.id for job in jobs}
    assert {tuple(linked(span)) for span in done} == {(sent.get_span_context().span_id,)}
    # What the calls of a task have in common is kept: the next one must not find the trace of this one.
    (again,) = work.enqueue_many([{"n": 1}])
    assert trace_of(backend, again) == traceparent(spans.named("enqueue default")[1])


def test_async_enqueues_belong_to_the_span_of_their_caller(app, spans):
    @app.task
    async def work(n: int = 0) -> None: ...

    async def main() -> None:
        with spans.tracer.start_as_current_span("caller"):
            await work.aenqueue()
            await work.aenqueue_many([{"n": 1}, {"n": 2}])
            await app.aenqueue("work")

    asyncio.run(main())
    caller = spans.one("caller").get_span_context().span_id
    assert [span.parent.span_id for span in spans.named("enqueue default")] == [caller] * 3


def test_an_enqueue_over_http_belongs_to_the_span_of_its_request(app, spans):
    @app.task
    async def work() -> None: ...

    api = create_app(app, tokens=False)

    async def traced(scope, receive, send) -> None:  # as an instrumentation of FastAPI does
        with spans.tracer.start_as_current_span("request"):
            await api(scope, receive, send)

    async def main() -> None:
        transport = httpx2.ASGITransport(traced, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for headers in ({}, {"Idempotency-Key": "once"}):
                answer = await client.post("/v1/jobs", json={"task": "work"}, headers=headers)
                assert answer.is_success, answer.text

    asyncio.run(main())
    requests = [span.get_span_context().span_id for span in spans.named("request")]
    assert [span.parent.span_id for span in spans.named("enqueue default")] == requests
    assert len(requests) == 2


def test_in_the_callers_own_transaction(app, spans, backend):
    @app.task
    def work(n: int = 0) -> None: ...

    if backend.name == "sqlite":
        connection = sqlite3.connect(file_of(backend))
    else:
        import psycopg

        connection = psycopg.connect(backend.url)
    with closing(connection):
        connection.execute("begin" if backend.name == "sqlite" else "select 1")
        kept = work.using(tx=connection).enqueue(1)
        connection.commit()
    assert trace_of(backend, kept) == traceparent(spans.one("enqueue default"))
    burst(app)
    assert linked(spans.one("process default")) == [spans.one("enqueue default").get_span_context().span_id]


def test_a_chain_is_one_enqueue_and_its_queues_are_not_made_up(app, spans):
    @app.task(queue="a")
    async def first() -> None: ...

    @app.task(queue="b")
    async def second() -> None: ...

    app.chain(first, second).enqueue()
    burst(app, queues=["a", "b"])
    sent = spans.one("enqueue")
    assert sent.attributes["messaging.batch.message_count"] == 2
    assert not {"messaging.destination.name", "leasehold.task"} & sent.attributes.keys()
    for name in ("process a", "process b"):
        assert linked(spans.one(name)) == [sent.get_span_context().span_id]


def test_a_dag_carries_the_context_too(app, spans):
    @app.task
    async def load() -> None: ...

    flow = app.dag()
    flow.add("one", load)
    flow.add("two", load, after=["one"])
    flow.enqueue()
    burst(app)
    sent = spans.one("enqueue default").get_span_context().span_id
    assert [linked(span) for span in spans.named("process default")] == [[sent], [sent]]


@pytest.mark.parametrize("now", [False, True], ids=["with the success", "at once"])
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_follow_up_belongs_to_the_attempt_that_asked_for_it(app, spans, now, colour):
    @app.task(queue="q")
    async def child() -> None: ...

    @app.task
    async def parent(ctx: Context) -> None:
        requested = ctx.enqueue(child.using(immediately=now))
        if now:
            await requested

    @app.task
    def plain_parent(ctx: SyncContext) -> None:
        ctx.enqueue(child.using(immediately=now))

    (parent if colour == "async" else plain_parent).enqueue()
    burst(app, queues=["default", "q"])
    requested, done = spans.one("enqueue q"), spans.one("process q")
    process = spans.one("process default")
    assert requested.parent.span_id == process.get_span_context().span_id
    assert requested.get_span_context().trace_id == process.get_span_context().trace_id
    assert requested.attributes["messaging.operation.type"] == ("send" if now else "create")
    assert linked(done) == [requested.get_span_context().span_id]
    assert requested.attributes["messaging.message.id"] == done.attributes["messaging.message.id"]


def test_a_retried_job_is_linked_to_who_enqueued_the_first(app, spans, backend):
    @app.task(retry=Retry(max_attempts=1))
    async def work() -> None:
        raise ValueError

    job = work.enqueue()
    burst(app)
    again = job.retry()
    burst(app)
    sent = spans.one("enqueue default")
    assert trace_of(backend, again) == traceparent(sent)
    assert [linked(span) for span in spans.named("process default")] == [
        [sent.get_span_context().span_id]
    ] * 2


def test_a_tick_has_nobody_to_link_to_and_a_run_by_hand_has(app, spans):
    @app.schedule(every="1h", at_start=True, name="hourly")
    @app.task
    async def report() -> None: ...

    async def main() -> None:
        async with app.worker(retention=None):
            await until(lambda: spans.named("process default"))
            await app.schedules.arun("hourly")
            await until(lambda: len(spans.named("process default")) == 2)

    asyncio.run(main())
    tick, by_hand = spans.named("process default")
    assert linked(tick) == []
    assert linked(by_hand) == [spans.one("enqueue default").get_span_context().span_id]


def test_run_now_is_an_enqueue_and_an_attempt(app, spans):
    @app.task(max_running=2)
    async def work() -> int:
        return 3

    assert app.run_now(work).result(timeout=20) == 3
    app.close()
    assert linked(spans.one("process default")) == [spans.one("enqueue default").get_span_context().span_id]


def test_a_job_of_a_tenant_is_traced_too(app, spans):
    @app.task
    async def work() -> None: ...

    app.tenants.create("acme")
    try:
        work.using(tenant="acme").enqueue()
        burst(app, tenants="acme")
    finally:
        app.tenants.drop("acme")  # on PostgreSQL it is a schema of a server that other tests share
    assert linked(spans.one("process default")) == [spans.one("enqueue default").get_span_context().span_id]


def test_the_message_of_an_enqueue_that_met_a_unique_key_is_the_job_that_held_it(app, spans):
    @app.task(unique="k")
    async def work() -> None: ...

    first, second = work.enqueue(), work.enqueue()
    assert first.id == second.id
    assert [span.attributes["messaging.message.id"] for span in spans.named("enqueue default")] == [
        first.id
    ] * 2
    with pytest.raises(DuplicateJob):
        work.using(on_duplicate="raise").enqueue()
    refused = spans.named("enqueue default")[2]
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.events[0].attributes["exception.type"].endswith("DuplicateJob")


def test_a_trace_that_the_caller_has_given_stays_and_is_linked_to(app, spans, backend):
    @app.task
    async def work(n: int = 0) -> None: ...

    mine = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    job = work.using(trace=mine).enqueue()
    many = work.using(trace="not W3C").enqueue_many([{"n": n} for n in range(60)])
    assert trace_of(backend, job) == mine
    assert trace_of(backend, many[59]) == "not W3C"
    burst(app)
    links = {span.attributes["messaging.message.id"]: linked(span) for span in spans.named("process default")}
    assert links[job.id] == [0x00F067AA0BA902B7]
    assert links[many[0].id] == []


# -- where code runs outside of its worker -----------------------------------------------------------------------------
def test_a_command_is_an_attempt_like_others(app, spans, tmp_path, monkeypatch):
    monkeypatch.setenv("LEASEHOLD_EXECUTIONS", str(tmp_path / "runs"))

    @app.command(retry=Retry(max_attempts=1))
    def fails() -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('no disk')"]

    fails.enqueue()
    burst(app)
    span = spans.one("process default")
    assert span.attributes["leasehold.outcome"] == "failed"
    assert span.attributes["error.type"] == "failed"
    assert span.status.description == "exit code 1: no disk"


@pytest.mark.slow
def test_a_job_in_a_process_has_its_span_in_the_worker(app, spans):
    app.task(run_in="process")(process_tasks.where).enqueue(4)
    app.task(run_in="process", retry=Retry(max_attempts=1))(process_tasks.raises).enqueue("value")
    burst(app)
    assert spans.of_kind("where").attributes["leasehold.outcome"] == "succeeded"
    failed = spans.of_kind("raises")
    assert failed.status.description == "ValueError: no good"
    assert "in raises" in failed.events[0].attributes["exception.stacktrace"]


# -- switched off ------------------------------------------------------------------------------------------------------
def test_asked_twice_there_is_one_span_each(app, spans):
    instrument(app, tracer_provider=spans.provider)

    @app.task
    async def work() -> None: ...

    work.enqueue()
    burst(app)
    assert len(spans.named("enqueue default")) == len(spans.named("process default")) == 1


def test_without_an_sdk_nothing_is_stored_and_jobs_run(app, backend):
    instrument(app, tracer_provider=NoOpTracerProvider())

    @app.task
    async def work() -> bool:
        return trace.get_current_span().get_span_context().is_valid

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) is False
    assert trace_of(backend, job) is None


def test_of_a_trace_that_is_not_sampled_nothing_is_stored(app, backend):
    instrument(app, tracer_provider=TracerProvider(sampler=ALWAYS_OFF))

    @app.task
    async def work() -> None: ...

    assert trace_of(backend, work.enqueue()) is None


def test_switched_off_again_nothing_is_told(app, spans, backend):
    @app.task
    async def work() -> None: ...

    app.instrument(None)
    job = work.enqueue()
    burst(app)
    assert not spans.named("enqueue default") + spans.named("process default")
    assert trace_of(backend, job) is None


def test_the_provider_may_be_set_after_the_app_was_instrumented(tmp_path):
    program = """
from leasehold import Leasehold
from leasehold.contrib.opentelemetry import instrument
app = Leasehold("sqlite:///jobs.db")
instrument(app)

@app.task
def work() -> None: ...

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.name + "\\n")))
trace.set_tracer_provider(provider)
work.enqueue()
app.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("enqueue default\n", "")


@pytest.mark.parametrize("when", ["begins", "ends"])
def test_a_tracing_that_breaks_breaks_no_attempt(app, caplog, when):
    def breaks(ending) -> None:
        raise RuntimeError("no collector")

    class Broken:
        def enqueueing(self, enqueue):
            return nullcontext()

        def running(self, run):
            return breaks(None) if when == "begins" else nullcontext(breaks)

    @app.task
    async def on_loop() -> int:
        return 7

    @app.task
    def in_thread() -> int:
        return 8

    app.instrument(Broken())
    jobs = [on_loop.enqueue(), in_thread.enqueue()]
    burst(app)
    assert [job.result(timeout=0) for job in jobs] == [7, 8]
    assert [record.name for record in caplog.records if record.exc_info] == ["leasehold.worker"] * 2


def test_the_exception_of_an_attempt_is_freed_with_it(app, spans):
    """Thousands fail a second, and the collector of a worker comes rarely."""
    kept: list[weakref.ref[Gone]] = []

    @app.task(retry=Retry(max_attempts=1))
    def work() -> None:
        error = Gone("once")
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    work.enqueue()
    gc.disable()
    try:
        burst(app)
        assert [ref() for ref in kept] == [None]
    finally:
        gc.enable()
    assert spans.one("process default").attributes["error.type"] == "Gone"
