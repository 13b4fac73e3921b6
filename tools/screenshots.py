"""`python -m tools.screenshots`: pictures of the running demo for docs/guides/dashboard.md, with Debian's Chromium."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
CHROMIUM = "chromium-headless-shell"
LONG_ENOUGH = 150.0
"""Seconds until the demo has something on every page, a worker that was killed among it."""
WIDE, PHONE = {"width": 1360, "height": 850}, {"width": 390, "height": 844}


def main() -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "leasehold", "demo", "--dashboard", "--port", "8791"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    try:
        url = next(
            found[0] for line in demo.stdout if (found := re.search(r"http://\S+?(?=/dashboard/)", line))
        )
        time.sleep(LONG_ENOUGH)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=f"/usr/bin/{CHROMIUM}",
                args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"],
            )
            _take(browser, url)
            browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(30)


def _take(browser: Browser, url: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    lost = _job(url, "crawl", lambda job: job["crashes"] > 0 and job["state"] == "succeeded")
    flow = _job(url, "summarize", lambda job: True)
    group = json.loads(_get(f"{url}/v1/groups?limit=1"))["groups"][0]["name"]
    wide = {
        "overview": "",
        "jobs": "jobs",
        "job": f"jobs/{lost}",
        "flow": f"jobs/{flow}/flow",
        "bulk": "bulk?verb=cancel&state=queued",
        "lanes": "lanes",
        "group": f"groups?name={quote(group)}",
        "workers": "workers",
        "questions": "questions",
        "limits": "limits",
        "schedules": "schedules",
        "system": "system",
    }
    for name, path in wide.items():
        _shoot(browser, f"{url}/dashboard/{path}", name, viewport=WIDE)
    _shoot(browser, f"{url}/dashboard/", "now-dark", viewport=WIDE, color_scheme="dark")
    _shoot(browser, f"{url}/dashboard/", "now-phone", viewport=PHONE)
    _shoot(browser, f"{url}/dashboard/jobs/{lost}", "job-phone", viewport=PHONE, color_scheme="dark")


def _shoot(browser: Browser, url: str, name: str, **look: Any) -> None:
    page = browser.new_context(**look).new_page()
    page.goto(url)
    page.wait_for_timeout(1500)  # charts are drawn, and it is live
    page.screenshot(path=IMAGES / f"dashboard-{name}.png")
    page.context.close()


def _job(url: str, task: str, wanted: Callable[[dict[str, Any]], bool]) -> str:
    jobs = json.loads(_get(f"{url}/v1/jobs?kind={task}&limit=500"))["jobs"]
    found: str = next(job["id"] for job in jobs if wanted(job))
    return found


def _get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        text: str = answer.read().decode()
    return text


if __name__ == "__main__":
    main()
