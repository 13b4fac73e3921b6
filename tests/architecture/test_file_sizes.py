"""A file is read as a whole: one that has grown long has a second role in it, or a reason."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.sources import PACKAGE

MOST_LINES = 600

_ONE_MIGRATION = "the first migration is the whole schema, made in one transaction"
# Longer files, and why. An entry that is no longer needed fails a test too.
LONGER: dict[str, str] = {
    "domain/errors.py": "one tree, and its picture on top",
    "stores/sqlite/migrations/0001_jobs.sql": _ONE_MIGRATION,
    "stores/postgres/migrations/0001_jobs.sql": _ONE_MIGRATION,
}


def test_a_file_has_at_most_600_lines_or_a_reason():
    long = longer(PACKAGE)
    assert {name: lines for name, lines in long.items() if name not in LONGER} == {}
    assert sorted(LONGER.keys() - long.keys()) == [], "these are short again: take them out of LONGER"


def longer(folder: Path) -> dict[str, int]:
    """Path and lines of every text file that is too long."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > MOST_LINES:
                found[path.relative_to(folder).as_posix()] = lines
    return found


def test_a_long_file_is_noticed_in_any_folder(tmp_path: Path):
    (tmp_path / "till").mkdir()
    (tmp_path / "till" / "long.sql").write_text("x\n" * 601)
    (tmp_path / "whole.py").write_text("x\n" * 600)
    assert longer(tmp_path) == {"till/long.sql": 601}
