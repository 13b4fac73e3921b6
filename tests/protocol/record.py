"""What the long walks have found, as a page of docs/measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from tests.measured import Page
from tests.protocol.explorer import Exploration

PAGE = Page(
    "protocol.md",
    "The protocol, walked to the last corner",
    "Written by `make soak` (tests/protocol): every state that a model can reach with these faults and verbs. No\n"
    "promise was broken in any of them, and from each one the jobs can still come to rest.",
    ("model", "setup", "states", "moves", "seconds", "on"),
    named_by=2,
)


def walk_on_record(model: str, setup: str, walk: Callable[[], Exploration]) -> Exploration:
    started = time.monotonic()
    found = walk()
    if found.sound:
        seconds, day = round(time.monotonic() - started), datetime.now(UTC).date().isoformat()
        PAGE.put(model, setup, found.states, found.edges, seconds, day)
    return found
