"""A real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests import debian

PROGRAM = "chromium-headless-shell"
PATIENCE = 60_000
"""Milliseconds that a busy machine may take for what takes one."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Of one module at a time: while it lives, its thread has an event loop, and other tests could not start theirs."""
    why = debian.why_not_installed({PROGRAM: PROGRAM})
    if why is not None:
        pytest.skip(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=debian.find(PROGRAM),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@cache
def _axe() -> str:
    return Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()


@dataclass
class Screen:
    """One person at one window. Whatever the browser complains about is kept."""

    context: BrowserContext
    url: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str = "/") -> Page:
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self._receive(message.type, message.text))
        page.on("pageerror", lambda error: self._receive("error", str(error)))
        page.on(
            "dialog", lambda dialog: (self._receive("error", f"dialog {dialog.message}"), dialog.dismiss())
        )
        page.goto(self.url + path)
        return page

    def _receive(self, task: str, text: str) -> None:
        if task in ("error", "warning"):
            self.complaints.append(text)

    def check_quiet(self) -> None:
        assert self.complaints == []


@contextlib.contextmanager
def screen(chromium: Browser, url: str, token: str | None = None, **options: Any) -> Iterator[Screen]:
    """Signed in with this token, as the sign-in page would have done it."""
    options.setdefault("viewport", {"width": 1300, "height": 850})
    context = chromium.new_context(**options)
    if token is not None:
        context.add_cookies([{"name": "leasehold_token", "value": token, "url": url, "httpOnly": True}])
    made = Screen(context, url)
    try:
        yield made
    finally:
        context.close()


def serious_findings(page: Page) -> list[str]:
    """What axe finds that keeps somebody from using the page."""
    page.evaluate(_axe())  # a script tag would be refused, as everybody's is
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate(f"axe.run(document, {{runOnly: {tags}}})")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width
