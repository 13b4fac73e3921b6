"""The code of docs/steps.md, as it stands there, on both stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends import Backend
from tests.workers import burst

PAGE = Path(__file__).parents[2] / "docs" / "steps.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def page(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the page defines."""
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    names: dict[str, Any] = {}
    text = "\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    if backend.name == "sqlite":
        text = text.replace("INTO ", "INTO leasehold_")
    else:
        text = re.sub(r"(?<=[(, ])\?(?=[,)])", "%s", text).replace("INTO ", f"INTO {backend.schema}.")
    for table in ("booking (number integer)", "payment (number integer, receipt text)"):
        backend.query(f"CREATE TABLE leasehold.{table}")
    exec(compile(text, str(PAGE), "exec"), names)
    yield names
    names["app"].close()
    for table in ("booking", "payment"):
        backend.query(f"DROP TABLE leasehold.{table}")


def test_the_code_of_the_page_does_what_the_page_says(page, backend):
    research = page["research"].enqueue("a b")
    ship, pay = page["ship"].enqueue(7), page["pay"].enqueue(8)
    count = page["count_up"].enqueue(5)
    burst(page["app"])
    assert research.result(timeout=0) == "what https://example.org/a says; what https://example.org/b says"
    assert research.__row__.attempt == 2
    names = {
        name for (name,) in backend.query("SELECT name FROM leasehold.step WHERE job_id = ?", research.id)
    }
    assert names == {"search", "read https://example.org/a", "read https://example.org/b"}
    assert backend.query("SELECT attempt FROM leasehold.step WHERE job_id = ?", research.id) == [(1,)] * 3
    assert (ship.result(timeout=0), pay.result(timeout=0)) == (7, "receipt 8")
    assert backend.query("SELECT number FROM leasehold.booking") == [(7,)]
    assert backend.query("SELECT number, receipt FROM leasehold.payment") == [(8, "receipt 8")]
    assert (count.result(timeout=0), count.__row__.attempt) == ([0, 1, 4, 9, 16], 2)
