"""docs/guides/opentelemetry.md names every way in which an attempt can end."""

from __future__ import annotations

from typing import get_args

from leasehold.types import AttemptOutcome
from tests.docs.pages import DOCS


def test_every_outcome_is_named() -> None:
    page = (DOCS / "guides/opentelemetry.md").read_text(encoding="utf-8")
    assert [outcome for outcome in get_args(AttemptOutcome) if f"`{outcome}`" not in page] == []
