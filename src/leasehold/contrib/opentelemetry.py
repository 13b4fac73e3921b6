"""OpenTelemetry: `from leasehold.contrib.opentelemetry import instrument`. Needs the extra:
`pip install 'leasehold[otel]'`, and an SDK to send the spans anywhere.

instrument(app)     # before app.worker()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata

from leasehold import Leasehold
from leasehold.errors import DriverMissing
from leasehold.types import TracedEnding, TracedEnqueue, TracedRun

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:  # pragma: no cover
    if error.name != "opentelemetry":
        raise
    raise DriverMissing("opentelemetry-api", "otel") from None

__all__ = ["instrument"]

_W3C = TraceContextTextMapPropagator()
_EMPTY = Context()


def instrument(app: Leasehold, *, tracer_provider: TracerProvider | None = None) -> None:
    """Make a span for every enqueue and one for every attempt, with a link from the attempt to its enqueue. A later
    call replaces an earlier one. Without a provider it uses the global one, which may be set later. Existing workers
    are not changed."""
    app.instrument(_OpenTelemetry(tracer_provider))


class _OpenTelemetry:
    def __init__(self, provider: TracerProvider | None) -> None:
        self._tracer = trace.get_tracer("leasehold", metadata.version("leasehold"), provider)

    @contextmanager
    def enqueueing(self, enqueue: TracedEnqueue) -> Iterator[str | None]:
        attributes: dict[str, str | int] = {
            "messaging.system": "leasehold",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "create" if enqueue.later else "send",
        }
        if enqueue.queue is not None:
            attributes["messaging.destination.name"] = enqueue.queue
        if enqueue.task is not None:
            attributes["leasehold.task"] = enqueue.task
        if enqueue.count > 1:
            attributes["messaging.batch.message_count"] = enqueue.count
        name = "enqueue" if enqueue.queue is None else f"enqueue {enqueue.queue}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            yield _traceparent(span)
            if enqueue.job_id is not None:
                span.set_attribute("messaging.message.id", enqueue.job_id)

    @contextmanager
    def running(self, run: TracedRun) -> Iterator[Callable[[TracedEnding], None]]:
        # Each attempt has its own trace: it may begin days after the enqueue, and a job may have several attempts.
        span = self._tracer.start_span(
            f"process {run.queue}",
            context=_EMPTY,
            kind=SpanKind.CONSUMER,
            links=_links(run.trace),
            attributes={
                "messaging.system": "leasehold",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": run.queue,
                "messaging.message.id": run.job_id,
                "leasehold.task": run.task,
                "leasehold.attempt": run.attempt,
            },
        )
        with trace.use_span(span, end_on_exit=True):
            yield partial(_record, span)


def _traceparent(span: Span) -> str | None:
    """Return the traceparent. None: the trace is not sampled, so a link to it would lead nowhere."""
    if not span.get_span_context().trace_flags.sampled:
        return None
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, _EMPTY))
    return carrier.get("traceparent")


def _links(text: str | None) -> list[Link]:
    """Return the links; none for a text that is not a W3C traceparent."""
    if text is None:
        return []
    made = trace.get_current_span(_W3C.extract({"traceparent": text}, _EMPTY)).get_span_context()
    return [Link(made)] if made.is_valid else []


def _record(span: Span, ending: TracedEnding) -> None:
    span.set_attribute("leasehold.outcome", ending.outcome)
    if not ending.is_error or not span.is_recording():
        return
    message = (ending.error or "").partition("\n")[0] or ending.outcome
    kind: str = ending.outcome
    if ending.exception is not None:
        kind = type(ending.exception).__qualname__
        span.record_exception(ending.exception)
    elif ending.error is not None:
        span.add_event("exception", {"exception.message": message, "exception.stacktrace": ending.error})
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, message))
