"""What the documents for contributors say of the source is true: they are short, and every file they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, ROOT
from tools.source_map import first_sentence, source_map

INTERNALS = ROOT / "docs" / "internals"
PAGES = [
    ROOT / "ARCHITECTURE.md",
    *sorted(page for page in INTERNALS.glob("*.md") if page.name != "map.md"),
]
MOST_LINES, WIDEST = 150, 130
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->\n", re.DOTALL)
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+)`")
STAGE = re.compile(r"^\| (.+) \| .+ \| .+ \| (.+) \|$", re.MULTILINE)


def exists(name: str) -> bool:
    """In the repository or in the package. `NAME` stands for any name."""
    return any(next(folder.glob(name.replace("NAME", "*")), None) is not None for folder in (ROOT, PACKAGE))


def test_the_architecture_is_short():
    lines = GENERATED.sub("", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")).splitlines()
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if len(line) > WIDEST] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path):
    assert [name for name in PATH.findall(page.read_text(encoding="utf-8")) if not exists(name)] == []


def test_every_stage_names_verbs_and_statements_that_exist():
    rows = STAGE.findall((INTERNALS / "stages.md").read_text(encoding="utf-8"))[1:]
    names = {name for _, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert len(rows) > 30
    assert len(names) > 25
    files = ("stores/verbs/{}.py", "stores/sqlite/sql/{}.sql", "stores/postgres/sql/{}.sql")
    assert [one.format(name) for name in sorted(names) for one in files if not exists(one.format(name))] == []


def test_every_internal_page_is_listed():
    text = (INTERNALS / "README.md").read_text(encoding="utf-8")
    assert {page.name for page in INTERNALS.glob("*.md")} == {
        "README.md",
        *re.findall(r"^\| .*?\]\((\S+)\)", text, re.M),
    }


def test_the_map_has_every_file_with_its_first_sentence(tmp_path: Path):
    package = tmp_path / "thing"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text('"""A thing."""\n')
    (package / "inner" / "one.py").write_text('"""Does `a.b` for\nsome_name. And more."""\n')
    page = source_map(package)
    assert "## thing\n\nA thing.\n" in page
    assert page.endswith("## thing/inner\n\n- `one.py`: Does `a.b` for some\\_name.\n")


def test_a_file_without_a_sentence_stops_the_map(tmp_path: Path):
    (tmp_path / "bare.py").write_text("x = 1\n")
    with pytest.raises(SystemExit, match=r"bare\.py"):
        first_sentence(tmp_path / "bare.py")
