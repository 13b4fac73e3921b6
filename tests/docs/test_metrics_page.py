"""docs/guides/metrics.md names every metric, outcome and bound that there is, and no other."""

from __future__ import annotations

import re
from typing import get_args

from leasehold.domain.metrics import KEPT_MINUTES, MOST_PAIRS, SPARE, Metrics, OutcomeLabel
from leasehold.surfaces.prometheus import text_of
from tests.docs.pages import DOCS

PAGE = (DOCS / "guides/metrics.md").read_text(encoding="utf-8")


def test_every_metric_is_named_and_no_other():
    reported = set(
        re.findall(r"^# TYPE (\w+)", text_of(Metrics([], [], [], [], [], 0, 0, 0, 0)), re.MULTILINE)
    )
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bleasehold_[a-z_]+", PAGE)}
    assert named - {"leasehold_rollup"} == reported


def test_every_outcome_is_explained():
    for outcome in get_args(OutcomeLabel):
        assert f"`{outcome}`" in PAGE


def test_the_numbers_on_the_page_are_those_of_the_code():
    assert f"first {MOST_PAIRS - SPARE} pairs" in PAGE
    assert f"at {MOST_PAIRS} pairs" in PAGE
    assert f"{KEPT_MINUTES // 60} hours" in PAGE
