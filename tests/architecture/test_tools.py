"""The scripts that releases and commits lean on find what they are there to find."""

from __future__ import annotations

import re

import pytest

from tools import release_check
from tools.commit_message import main, what_is_wrong
from tools.coverage_page import page, room_of
from tools.release_check import NotReady, check_sdist, check_wheel, is_dated

SOURCES = {"src/leasehold/app.py", "src/leasehold/py.typed", "src/leasehold/stores/sqlite/sql/claim.sql"}
WHEEL = {name.removeprefix("src/") for name in SOURCES} | {"leasehold-0.1.0.dist-info/licenses/LICENSE"}


def test_a_whole_wheel_is_accepted():
    check_wheel(WHEEL, SOURCES)


@pytest.mark.parametrize(
    ("wheel", "named"),
    [
        (WHEEL - {"leasehold/stores/sqlite/sql/claim.sql"}, "claim.sql"),
        (WHEEL - {"leasehold/py.typed"}, "py.typed"),
        (WHEEL | {"tests/conftest.py"}, "tests/conftest.py"),
        ({name for name in WHEEL if "LICENSE" not in name}, "licence: False"),
    ],
)
def test_a_wheel_with_a_hole_or_too_much_is_refused(wheel: set[str], named: str):
    with pytest.raises(NotReady, match=re.escape(named)):
        check_wheel(wheel, SOURCES)


def test_an_sdist_without_its_tests_is_refused():
    with pytest.raises(NotReady, match=r"tests/conftest\.py"):
        check_sdist(SOURCES | {"pyproject.toml", "LICENSE", "README.md"}, SOURCES)


def test_a_release_needs_its_own_dated_heading():
    dated = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n"
    assert is_dated(dated, "0.1.0")
    assert not is_dated(dated, "0.1")
    assert not is_dated("## [0.1.0]\n", "0.1.0")


def test_a_tree_that_is_not_clean_is_not_tagged(monkeypatch: pytest.MonkeyPatch):
    answers = {"status": " M README.md", "tag": ""}
    monkeypatch.setattr(release_check, "reported", lambda command: answers[command[1]])
    with pytest.raises(NotReady, match="not committed"):
        release_check.check_commit("0.1.0")
    answers.update(status="", tag="v0.1.0")
    with pytest.raises(NotReady, match="exists already"):
        release_check.check_commit("0.1.0")


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "x" * 73,
        "fix: a thing",
        "feat(store)!: a thing",
        "[docs] A thing",
        "Mend a thing.",
        "mend a thing",
        "Mend it\nnow",
    ],
)
def test_a_subject_that_breaks_a_rule_is_refused(subject: str):
    assert what_is_wrong(subject)


def test_a_message_is_read_without_the_comments_of_git(tmp_path, capsys):
    file = tmp_path / "message"
    file.write_text("Fence hand-back with the lease token\n\nWhy: a late one won.\n# On branch main.\n")
    assert main([str(file)]) == 0
    file.write_text("# On branch main\nfence it.\n")
    assert main([str(file)]) == 1
    assert "full stop" in capsys.readouterr().err


def test_the_page_on_coverage_adds_up_and_names_its_command():
    half = {"num_statements": 10, "missing_lines": 5, "num_branches": 2, "missing_branches": 1}
    whole = {"num_statements": 8, "missing_lines": 0, "num_branches": 0, "missing_branches": 0}
    both = {key: half[key] + whole[key] for key in half}
    report = {
        "files": {
            "src/leasehold/app.py": {"summary": whole},
            "src/leasehold/stores/sqlite/store.py": {"summary": half},
        },
        "totals": both,
    }
    text = page(report, ["tests/domain"])
    assert '`make coverage ARGS="tests/domain"`' in text
    assert "| stores/sqlite | 10 | 5 | 2 | 1 | 50.0 % |" in text
    assert "| **all** | 18 | 5 | 2 | 1 | 70.0 % |" in text
    assert "`make coverage`." in page(report, [])


def test_rooms_are_folders():
    rooms = [
        room_of(name)
        for name in ("app.py", "domain/states.py", "stores/database/a.py", "surfaces/cli/b/c.py")
    ]
    assert rooms == ["top level", "domain", "stores/database", "surfaces/cli"]
