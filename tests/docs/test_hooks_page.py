"""The code of docs/hooks.md, as it stands there, on both stores."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold.domain.hooks import EVENTS
from leasehold.domain.webhooks import signed_headers
from tests.backends import Backend
from tests.docs.pages import blocks
from tests.workers import burst


@pytest.fixture
def page(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the page defines."""
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile("\n".join(blocks("hooks.md", "python")), "hooks.md", "exec", dont_inherit=True), names)
    yield names
    names["app"].close()


def test_the_code_of_the_page_does_what_the_page_says(page, capsys):
    app = page["app"]
    page["report"].enqueue()
    burst(app)
    assert "the report" in capsys.readouterr().out
    listeners = {(row.name, row.event) for row in app.__internals__.store.list_listeners()}
    assert {("webhook:ops", "failed"), ("page.page_me", "lane_halted")} <= listeners
    secret, body = "a secret of some length", json.dumps({"type": "failed", "data": {}}).encode()
    headers = signed_headers("an-id", body, secret, time.time())
    assert page["receive"](headers, body, secret) == 204
    assert page["receive"](headers, body + b" ", secret) == 400


def test_the_page_names_every_event():
    from tests.docs.pages import DOCS

    text = (DOCS / "hooks.md").read_text(encoding="utf-8")
    assert [event for event in EVENTS if f"`{event}`" not in text] == []
