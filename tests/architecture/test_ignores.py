"""A `type: ignore` says on its line why the checker is wrong."""

from __future__ import annotations

import re

from tests.architecture.sources import PACKAGE

REASON = re.compile(r"type: ignore\[[\w, -]+\]\s*#\s*\w+")


def test_every_type_ignore_gives_its_reason():
    bare = [
        line for path in PACKAGE.rglob("*.py") for line in without_reason(path.read_text(encoding="utf-8"))
    ]
    assert bare == []


def without_reason(source: str) -> list[str]:
    return [
        line.strip() for line in source.splitlines() if "type: ignore" in line and not REASON.search(line)
    ]


def test_an_ignore_without_a_reason_is_noticed():
    assert without_reason("a = b  # type: ignore[misc]\nc = d  # type: ignore[misc] # no types\n") == [
        "a = b  # type: ignore[misc]"
    ]
