"""The code of docs/concepts/hooks.md, as it stands there, on both stores."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.domain.hooks import EVENTS
from tests.backends import Backend
from tests.docs.pages import DOCS, blocks
from tests.workers import burst


def test_the_code_of_the_page_does_what_the_page_says(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    names: dict[str, Any] = {"__name__": "page"}
    for code in blocks("concepts/hooks.md", "python"):
        if code.startswith(("# hooked.py", "app.webhook(")):
            exec(compile(code, "concepts/hooks.md", "exec", dont_inherit=True), names)
    with names["app"] as app:
        names["report"].enqueue("Saturday")
        burst(app)
        assert "the report for Saturday" in capsys.readouterr().out
        listeners = {(row.name, row.event) for row in app.__internals__.store.list_listeners()}
        assert {("webhook:chat", "failed"), ("page.page_me", "lane_halted")} <= listeners


def test_the_page_names_every_event():
    text = (DOCS / "concepts/hooks.md").read_text(encoding="utf-8")
    assert [event for event in EVENTS if f"`{event}`" not in text] == []
