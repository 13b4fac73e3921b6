"""The code of docs/questions.md, as it stands there, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leasehold import State
from tests.backends import Backend
from tests.docs.pages import blocks
from tests.workers import burst


@pytest.fixture
def page(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the page defines."""
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    names: dict[str, Any] = {}
    exec(
        compile("\n".join(blocks("questions.md", "python")), "questions.md", "exec", dont_inherit=True), names
    )
    yield names
    names["app"].close()


def test_the_code_of_the_page_does_what_the_page_says(page, capsys):
    app = page["app"]
    job = page["order"].enqueue("tea")
    burst(app)
    assert f"job {job.id} asks: Buy tea for 12?" in capsys.readouterr().out
    assert job.refresh().state is State.WAITING
    for _ in range(2):
        page["answer_all"]()
        burst(app)
    assert job.result(timeout=0) == "bought tea"
    assert [(q.key, q.status, q.secret) for q in job.questions()] == [
        ("approval", "answered", False),
        ("password", "answered", True),
    ]
    assert "open sesame" not in repr(job.questions())
