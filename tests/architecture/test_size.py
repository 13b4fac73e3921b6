"""A ratchet on the size of the package: what is said once stays said once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE

# A feature may raise a limit with a decision record that names it, by at most MOST_OF_A_FEATURE lines.
MOST_PYTHON_LINES = 58_100
MOST_PYTHON_FILES = 301
MOST_SQL_LINES = 6_700
MOST_OF_A_FEATURE = 1_200


def lines_of(folder: Path, pattern: str) -> dict[str, int]:
    """Path and lines of every file of a kind."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob(pattern)}
    return {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in found.items()}


@pytest.mark.parametrize(
    ("what", "size", "most"),
    [
        ("lines of Python", sum(lines_of(PACKAGE, "*.py").values()), MOST_PYTHON_LINES),
        ("files of Python", len(lines_of(PACKAGE, "*.py")), MOST_PYTHON_FILES),
        ("lines of SQL", sum(lines_of(PACKAGE, "*.sql").values()), MOST_SQL_LINES),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_package_does_not_grow_without_a_decision(what: str, size: int, most: int):
    assert size <= most, f"{size:,} {what}; fold or delete, or raise the limit with a decision record"


@pytest.mark.parametrize(
    ("what", "size", "most"),
    [
        ("lines of Python", sum(lines_of(PACKAGE, "*.py").values()), MOST_PYTHON_LINES),
        ("lines of SQL", sum(lines_of(PACKAGE, "*.sql").values()), MOST_SQL_LINES),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_limit_leaves_room_for_one_feature_at_most(what: str, size: int, most: int):
    assert most - size <= MOST_OF_A_FEATURE, f"{size:,} {what}: lower the limit of {most:,}"


def test_every_kind_of_file_is_counted_in_any_folder(tmp_path: Path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "one.py").write_text("a\nb\n")
    (tmp_path / "two.sql").write_text("a\n")
    assert lines_of(tmp_path, "*.py") == {"deep/er/one.py": 2}
    assert lines_of(tmp_path, "*.sql") == {"two.sql": 1}
