"""The pure parts: words, trees, timelines, charts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.metrics import Histogram, Rollup, histogram_of
from leasehold.domain.records import AttemptRecord, StepRecord
from leasehold.domain.sensitive import HIDDEN
from leasehold.surfaces.dashboard import render
from leasehold.surfaces.dashboard.pages import overview
from leasehold.surfaces.dashboard.timeline import MOST_BARS, timeline

NOW = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.0421, "42 ms"),
        (0.9999, "1 s"),
        (9.94, "9.9 s"),
        (59.7, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (86_400 * 400, "400 d"),
        (-5, "−5 s"),
    ],
)
def test_spans_are_told_in_two_units_at_most(seconds, reported):
    assert render.span(seconds) == reported


@pytest.mark.parametrize(
    ("away", "reported"),
    [
        (0.4, "now"),
        (5, "5 s ago"),
        (-5.5, "in 5 s"),
        (125, "2 min ago"),
        (7300, "2 h ago"),
        (90_000, "25 h ago"),
        (200_000, "2 d ago"),
    ],
)
def test_times_are_told_by_how_far_they_are_away(away, reported):
    assert render.ago(NOW - timedelta(seconds=away), NOW) == reported


def test_characters_that_do_something_are_made_visible():
    assert render.plain("a\x1b[31m\x07\x00b\x7f\x9b") == "a␛[31m␇␀b␡\ufffd"
    assert render.plain("line\nnext\ttab é 🎉 \u202eabc") == "line\nnext\ttab é 🎉 \u202eabc"


def test_a_tree_is_bounded_whatever_is_in_the_value():
    deep: object = "end"
    for _ in range(200):
        deep = [deep]
    wide = {f"k{n}": n for n in range(100_000)}

    def count(node: render.Node) -> int:
        return 1 + sum(count(child) for child in node.children)

    for value in (deep, wide, [wide, wide], "x" * 1_000_000, {"a" * 100_000: "b" * 100_000}):
        node = render.tree_of(value)
        assert count(node) <= 2 * render.MOST_NODES
        assert len(node.text) < 2 * render.LONGEST_TEXT
    assert render.tree_of(wide).children[-1].kind == "cut"
    assert render.tree_of({"key": HIDDEN}).children[0].kind == "secret"
    assert render.tree_of_text("{broken").text == "{broken"
    assert render.tree_of_text("[" * 100_000).kind == "text"


def test_a_timeline_tells_who_held_the_lease_gaps_and_handovers():
    def at(seconds: float) -> datetime:
        return NOW + timedelta(seconds=seconds)

    attempts = [
        AttemptRecord(1, "one", at(10), at(20), "lost", "gone"),
        AttemptRecord(2, "two", at(50), at(60), "detached", None),
        AttemptRecord(2, "three", at(65), None, "running", None),
    ]
    steps = [StepRecord("load", 2, at(55), None), StepRecord("early", 1, at(99), None)]
    drawn = timeline(at(0), at(100), attempts, steps)
    assert drawn is not None
    assert [(bar.start, round(bar.width, 6), bar.look) for bar in drawn.bars] == [
        (10, 10, "stopping"),
        (50, 10, "queued"),
        (65, 35, "running"),
    ]
    assert [(gap.start, gap.width) for gap in drawn.gaps] == [(20, 30)]
    assert [one.at for one in drawn.handovers] == [65]
    assert [[tick.at for tick in bar.steps] for bar in drawn.bars] == [[], [55], []]
    assert all("held by" in bar.title for bar in drawn.bars)


def test_a_job_that_has_waited_long_is_drawn_from_its_first_run_and_one_with_many_runs_from_its_last():
    first = AttemptRecord(
        1, "w", NOW + timedelta(hours=5), NOW + timedelta(hours=5, seconds=4), "succeeded", None
    )
    drawn = timeline(NOW, NOW + timedelta(hours=5, seconds=4), [first])
    assert drawn is not None
    assert drawn.bars[0].width > 90
    assert drawn.waited == "5 h"
    many = [
        AttemptRecord(n, "w", NOW + timedelta(seconds=n), NOW + timedelta(seconds=n + 1), "failed", None)
        for n in range(200)
    ]
    drawn = timeline(NOW, NOW + timedelta(seconds=201), many)
    assert drawn is not None
    assert (len(drawn.bars), drawn.left_out) == (MOST_BARS, 200 - MOST_BARS)
    assert timeline(NOW, NOW, []) is None


def test_quantiles_lie_in_their_buckets():
    assert overview.quantile(Histogram(), 0.5) is None
    histogram = histogram_of([0.02] * 50 + [3.0] * 50)
    median, high = overview.quantile(histogram, 0.5), overview.quantile(histogram, 0.95)
    assert median is not None
    assert 0.01 <= median <= 0.05
    assert high is not None
    assert 1 <= high <= 5
    assert overview.quantile(histogram_of([1e9]), 0.5) == 14400


def test_minutes_without_attempts_are_there_too():
    rollups = [
        Rollup("q", "k", "succeeded", 4, minute=NOW - timedelta(minutes=2)),
        Rollup("q", "k", "timed_out", 1, minute=NOW - timedelta(minutes=2)),
        Rollup("q", "k", "lost", 2, minute=NOW),
    ]
    minutes = overview.minutes_of(rollups, NOW + timedelta(seconds=30), 5)
    assert [(one.succeeded, one.failed, one.retried) for one in minutes] == [
        (0, 0, 0),
        (0, 0, 0),
        (4, 1, 0),
        (0, 0, 0),
        (0, 0, 2),
    ]
    chart = json.loads(overview.attempts_chart(minutes))
    assert [len(line) for line in chart["data"]] == [5, 5, 5, 5]


@pytest.mark.parametrize(("first", "drawn"), [(None, 4), (0, 10), (4, 7), (8, 4)])
def test_a_chart_begins_just_before_the_first_attempt_but_is_never_too_short(first: int | None, drawn: int):
    minutes = [
        overview.Minute(NOW + timedelta(minutes=n), int(n == first), 0, 0, None, None) for n in range(10)
    ]
    shown = overview.since_the_first_attempt(minutes, 4)
    assert list(shown) == minutes[-drawn:]
