"""The check of the documents finds links that lead nowhere, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_docs import DOCUMENTS, find_problems, slug_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in DOCUMENTS:
        (tmp_path / name).write_text("# Title\n")
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "docs" / "guide.md").write_text(
        "# Guide\n\n## Claim & *settle*\n\n## Twice\n\n## Twice\n\nUnder a line\n---\n\n<a id='own'></a>\n"
    )
    (tmp_path / "code.py").write_text("first = 1\nsecond = 2\n")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "[guide](docs/guide.md)", "[`code`](docs/guide.md 'a title')", "![picture](code.py)", "[folder](docs/)",
        "[top](#title)", "[claim](docs/guide.md#claim--settle)", "[second](docs/guide.md#twice-1)",
        "[lined](docs/guide.md#under-a-line)", "[own](docs/guide.md#own)", "[line](code.py#L2)", "[x]: docs/guide.md",
        "[site](https://example.org/nowhere#x)", "[mail](mailto:a@example.org)", "<a href='docs/guide.md'>x</a>",
        "`[code](nowhere.md)`", "```\n[fenced](nowhere.md)\n```", "~~~~\n~~~\n[x](nowhere.md)\n~~~~",
        "<!-- [x](nowhere.md) -->",
    ],
)  # fmt: skip
def test_good_links_pass(root: Path, text: str):
    (root / "README.md").write_text(f"# Title\n\n{text}\n")
    assert find_problems(root) == []


@pytest.mark.parametrize(
    "text",
    [
        "[x](nowhere.md)", "[x](docs/Guide.md)", "[x](#nowhere)", "[x](docs/guide.md#nowhere)",
        "[x](docs/guide.md#twice-2)",
        "[x](code.py#L3)", "[x](/README.md)", "[x](../outside.md)", "![x](nowhere.png)", "[x]: nowhere.md",
        "<img src='nowhere.png'>", "[x](<no where.md>)", "```\ncode\n```\n[x](nowhere.md)",
    ],
)  # fmt: skip
def test_a_link_that_leads_nowhere_is_found(root: Path, text: str):
    (root / "README.md").write_text(f"# Title\n\n{text}\n")
    assert len(find_problems(root)) == 1


def test_a_problem_names_file_and_line(root: Path):
    (root / "docs" / "decisions" / "0001-first.md").write_text(
        "# First\n\nSee [above](../guide.md),\n[x](gone.md).\n"
    )
    [problem] = find_problems(root)
    assert (problem.file, problem.line) == ("docs/decisions/0001-first.md", 4)
    assert "gone.md" in problem.text


def test_a_missing_document_is_a_problem(root: Path):
    (root / "CHANGELOG.md").unlink()
    assert [problem.file for problem in find_problems(root)] == ["CHANGELOG.md"]


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("The life of a job", "the-life-of-a-job"),
        ("`settle(job)` and [claim](x.md)", "settlejob-and-claim"),
        ("What's on_lost?", "whats-on_lost"),
        ("0001: _leases_", "0001-leases"),
    ],
)
def test_slugs_are_those_of_the_usual_renderers(heading: str, slug: str):
    assert slug_of(heading) == slug
