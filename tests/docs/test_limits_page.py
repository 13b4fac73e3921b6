"""The code of docs/limits.md, as it stands there, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leasehold.errors import InvalidInput
from tests.backends import Backend
from tests.docs.pages import blocks
from tests.workers import burst


@pytest.fixture
def page(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the page defines."""
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    names: dict[str, Any] = {"__name__": "crawl"}
    exec(compile("\n".join(blocks("limits.md", "python")), "limits.md", "exec"), names)
    yield names
    names["app"].close()


def test_the_code_of_the_page_does_what_the_page_says(page):
    app = page["app"]
    with pytest.raises(InvalidInput, match=r"app\.slots\.set"):
        page["shoot"].enqueue("a")
    page["set_limits"]()
    jobs = [page["shoot"].enqueue("a"), page["render"].enqueue("b"), page["fetch"].enqueue("c.org", "d")]
    told = page["summarize"].enqueue(["x", "y"])
    burst(app)
    assert [job.result(timeout=0) for job in jobs] == ["picture of a", "page of b", "c.org/d"]
    assert told.result(timeout=0) == ["X", "Y"]
    assert {slot.name: (slot.limit, slot.used) for slot in app.slots.list()} == {
        "browser": (2, 0),
        "cpu": (8, 0),
    }
    assert {rate.key: (rate.limit, rate.burst) for rate in app.rates.list()} == {
        "c.org": ("600/min", 5),
        "model": ("60/s", 1),
    }
