"""tests/promises.md: every row is there once, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "tests" / "promises.md").read_text(encoding="utf-8")
LATER = "not yet"
_ROW = re.compile(r"^\| (?!# \|)([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::([\w:]+)`")

ENGINE = """
    states, enqueue, claim, lanes, lease, recovery, attempts, cancel, pause resume resolve, budgets, waiting, groups,
    stop, long poll, slots, rate limits, follow-ups, scheduler, worker, tenants, drain, results, truthful record,
    cap and reject, delivery, runners, retention, metrics, surfaces
"""
NUMBERED = {
    "A": 30, "B": 20, "C": 29, "D": 25, "E": 36,  # the documents, statement by statement
    "MA": 8, "MB": 9, "MC": 17, "MD": 8, "ME": 17,  # each application as a whole
    "P": 11, "Y": 5,  # all of them
    "W": 15, "V": 9, "N": 9, "R": 8, "H": 12, "K": 8, "Q": 6, "S": 5, "F": 12,  # what the reading found
}  # fmt: skip
SCHEDULES, TRANSACTIONS = "abcdefghi", "abcdefg"


def expected_ids() -> set[str]:
    ids = {" ".join(name.split()) for name in ENGINE.split(",")}
    ids |= {f"{letter}{number}" for letter, last in NUMBERED.items() for number in range(1, last + 1)}
    ids |= {f"T1{part}" for part in SCHEDULES} | {f"T2{part}" for part in TRANSACTIONS}
    return ids | {f"T{number}" for number in range(3, 9)}


def rows() -> dict[str, str]:
    """By its id, what a row is shown by."""
    return {row_id.replace(",", ""): shown for row_id, _, shown in _ROW.findall(PAGE)}


def named_tests() -> list[tuple[str, str]]:
    return sorted(set(_TEST.findall(PAGE)))


@cache
def functions_of(file: Path) -> frozenset[str]:
    """Functions, and methods as `Class::function`."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


def is_shown(shown: str) -> bool:
    """A test, or a sentence, or the word that says that there is neither."""
    sentence = shown.endswith(".") and len(shown.split()) >= 4
    return bool(_TEST.search(shown)) or sentence or shown == LATER


def test_every_row_is_there_once():
    ids = Counter(row_id.replace(",", "") for row_id, _, _ in _ROW.findall(PAGE))
    assert [row_id for row_id, times in ids.items() if times > 1] == []
    assert set(ids) == expected_ids()
    in_tables = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| # ")]
    assert len(in_tables) == ids.total(), "a row that cannot be read"


def test_every_test_that_is_named_exists():
    named = named_tests()
    assert len(named) > 100
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or name not in functions_of(ROOT / file)
    ]
    assert missing == []


def test_what_looks_like_a_test_is_read_as_one():
    assert len(re.findall(r"::test_", PAGE)) == len(_TEST.findall(PAGE))


def test_every_row_has_a_test_or_a_sentence():
    assert {row_id: shown for row_id, shown in rows().items() if not is_shown(shown)} == {}


def test_what_is_not_shown_yet_is_listed_at_the_top():
    top = PAGE.partition("## Not shown yet\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"\b[A-Z]+\d+[a-i]?\b", top))
    assert listed == {row_id for row_id, shown in rows().items() if LATER in shown}


@pytest.mark.parametrize(
    "name", ["agent_server", "mail_assistant", "model_runs", "research_agent", "tool_runner"]
)
def test_every_application_has_a_readme_that_shows_it_working(name):
    text = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")
    assert f"python -m examples.{name}" in text
    assert re.search(r"^```", text, re.MULTILINE), "a transcript"


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        ("`tests/docs/test_promises.py::test_every_row_is_there_once`", True),
        ("The engine has rows of its own for this.", True),
        ("not yet", True),
        ("", False),
        ("somehow", False),
        ("`test_every_row_is_there_once`", False),
    ],
)
def test_an_empty_or_vague_cell_does_not_count(shown, right):
    assert is_shown(shown) is right
