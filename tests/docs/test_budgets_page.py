"""The code of docs/budgets.md, as it stands there, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leasehold import State
from leasehold.errors import Refused
from tests.backends import Backend
from tests.docs.pages import blocks
from tests.workers import burst


@pytest.fixture
def page(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the page defines."""
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks("budgets.md", "python")), "budgets.md", "exec", dont_inherit=True), names)
    yield names
    names["app"].close()


def test_the_code_of_the_page_does_what_the_page_says(page, capsys):
    research = page["research"].enqueue(["a", "b", "c"])
    discuss = page["discuss"].enqueue("d")
    crawl, careful = page["crawl"].enqueue(list("abcde")), page["careful"].enqueue()
    burst(page["app"])
    assert crawl.result(timeout=0) == ["a", "b", "c"]
    assert careful.result(timeout=0) == "11 of 10 tokens"
    assert research.refresh().state is State.PAUSED
    with pytest.raises(Refused, match="top_up"):
        research.resume()
    page["let_it_go_on"](research.id)
    assert "job tokens 270000 of 200000" in capsys.readouterr().out
    burst(page["app"])
    assert research.result(timeout=0) == ["about a", "about b", "about c"]
    assert {row.key: row.amount for row in research.spending()} == dict.fromkeys("abc", 90_000)
    assert (discuss.result(timeout=0), discuss.budget()[0].spent) == ("about d" * 3, 27_000)
    (line,) = page["app"].group("task-42").budget()
    assert (line.limit, line.spent) == (1_000_000, 0)
