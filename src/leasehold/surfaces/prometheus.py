"""Formats metrics as the text that Prometheus scrapes (exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from leasehold.domain.metrics import BOUNDS, Histogram, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Label = tuple[str, str]
Sample = tuple[tuple[Label, ...], float]


def text_of(metrics: Metrics) -> str:
    return "".join(f"{line}\n" for line in _lines(metrics))


def _lines(metrics: Metrics) -> Iterator[str]:
    yield from _family(
        "leasehold_attempts_total",
        "counter",
        "Attempts that have ended, by outcome.",
        (
            ((*_pair(one.queue, one.task), ("outcome", one.outcome)), one.attempts)
            for one in metrics.totals
        ),
    )  # fmt: skip
    waits = _by_pair((one.queue, one.task, one.wait) for one in metrics.totals)
    yield from _histograms(
        "leasehold_wait_seconds", "Seconds from when a job was due until its attempt began.", waits
    )
    times = _by_pair((one.queue, one.task, one.duration) for one in metrics.totals)
    yield from _histograms("leasehold_attempt_seconds", "Seconds that attempts took.", times)
    yield from _family(
        "leasehold_jobs",
        "gauge",
        "Jobs that have neither succeeded nor been cancelled, each state counted up to 10000.",
        (((*_pair(one.queue, one.task), ("state", one.state.value)), one.jobs) for one in metrics.jobs),
    )
    yield from _family(
        "leasehold_oldest_ready_seconds",
        "gauge",
        "Seconds that the oldest unclaimed job of a queue has been due.",
        (((("queue", one.queue),), one.seconds) for one in metrics.ready),
    )
    yield from _family(
        "leasehold_oldest_lease_seconds",
        "gauge",
        "Seconds since the oldest running attempt began.",
        ((_pair(one.queue, one.task), one.oldest) for one in metrics.leases),
    )
    yield from _family(
        "leasehold_lease_expires_in_seconds",
        "gauge",
        "Seconds until the first lease expires. Below 0: it has expired, and no worker has taken over its job yet.",
        ((_pair(one.queue, one.task), one.expires_in) for one in metrics.leases),
    )
    yield from _family(
        "leasehold_workers",
        "gauge",
        "Live workers.",
        [((("state", "serving"),), metrics.workers), ((("state", "draining"),), metrics.draining)],
    )
    yield from _family(
        "leasehold_worker_places",
        "gauge",
        "Jobs that serving workers can run at once.",
        [((), metrics.places)],
    )
    yield from _family(
        "leasehold_slot_used",
        "gauge",
        "Units of a slot that are in use.",
        (((("slot", one.name),), one.used) for one in metrics.slots),
    )
    yield from _family(
        "leasehold_slot_limit",
        "gauge",
        "Units of a slot that may be in use at once.",
        (((("slot", one.name),), one.limit) for one in metrics.slots),
    )
    yield from _family(
        "leasehold_open_questions",
        "gauge",
        "Questions that wait for an answer.",
        [((), metrics.open_questions)],
    )


def _pair(queue: str, task: str) -> tuple[Label, Label]:
    return ("queue", queue), ("task", task)


def _by_pair(found: Iterable[tuple[str, str, Histogram]]) -> dict[tuple[str, str], Histogram]:
    """Add up all outcomes: a histogram per outcome would make ten times as many series."""
    added: dict[tuple[str, str], Histogram] = {}
    for queue, task, histogram in found:
        added[queue, task] = added.get((queue, task), Histogram()) + histogram
    return added


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield from _head(name, kind, about)
    for labels, value in samples:
        yield _sample(name, labels, value)


def _histograms(name: str, about: str, found: dict[tuple[str, str], Histogram]) -> Iterator[str]:
    yield from _head(name, "histogram", about)
    for (queue, task), histogram in found.items():
        pair = _pair(queue, task)
        bounds = [*map(_number, BOUNDS), "+Inf"]
        for bound, count in zip(bounds, accumulate(histogram.buckets), strict=True):
            yield _sample(f"{name}_bucket", (*pair, ("le", bound)), count)
        yield _sample(f"{name}_sum", pair, histogram.seconds)
        yield _sample(f"{name}_count", pair, histogram.count)


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, labels: Iterable[Label], value: float) -> str:
    text = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{text}}} {_number(value)}" if text else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    """Escape the characters that would end the value or the line."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(round(value, 6))
