"""Decision records have the form that docs/decisions/README.md describes, and stand in its list."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.sources import ROOT

FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEADING = re.compile(r"# (\d+)\. ([^:]+: \S.*)")
LINK = re.compile(r"\[(\d{4})\]\(([^)]+)\)")
LATER = r"superseded by \[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\)"
STATUS = re.compile(rf"Status: (?:proposed|accepted|rejected|{LATER})(?:$|\. )")
REPLACED_BY = re.compile(r"superseded by|Changed by")
REPLACES = re.compile(r"Supersedes|Changes")
ROW = re.compile(r"^\| \[(\d{4})\]\((\d{4}-[a-z0-9-]+\.md)\) \| (.+) \|$", re.MULTILINE)


def head(path: Path) -> tuple[str, str, str]:
    """The number, the title and the status line of a record."""
    heading, empty, status, after = path.read_text(encoding="utf-8").splitlines()[:4]
    found = HEADING.fullmatch(heading)
    assert found is not None, f"{path.name}: the title is `# NUMBER. subject: decision`"
    assert (empty, after) == ("", ""), f"{path.name}: the status is one line"
    return found[1], found[2], status


def named_in(status: str, verb: re.Pattern[str]) -> set[str]:
    """The numbers of the records that the sentences with this verb link to."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", status.removeprefix("Status: "))
    return {number for sentence in sentences if verb.match(sentence) for number, _ in LINK.findall(sentence)}


def test_records_are_numbered_without_gaps():
    numbers = [int(path.name[:4]) for path in RECORDS]
    assert numbers
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_record_is_named_after_its_number_and_its_title():
    wrong = []
    for path in RECORDS:
        number, title, _ = head(path)
        words = re.findall(r"[a-z0-9]+", title.lower().replace("'", ""))
        if path.stem != "-".join([number.zfill(4), *words]):
            wrong.append(path.name)
    assert wrong == []


def test_every_record_has_a_status():
    assert [path.name for path in RECORDS if not STATUS.match(head(path)[2])] == []


def test_a_record_that_replaces_another_is_named_there_and_the_other_way_round():
    statuses = {path.name[:4]: head(path)[2] for path in RECORDS}
    replaced = {(old, new) for old, text in statuses.items() for new in named_in(text, REPLACED_BY)}
    replacing = {(old, new) for new, text in statuses.items() for old in named_in(text, REPLACES)}
    assert replaced
    assert replaced == replacing
    assert [pair for pair in replaced if pair[0] >= pair[1]] == []


def test_the_list_has_every_record_once_with_its_title_and_in_order_in_each_room():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    expected = {}
    for path in RECORDS:
        _, title, status = head(path)
        later = LINK.search(status) if status.startswith("Status: superseded") else None
        expected[path.name] = f"{title} (superseded by {later[1]})" if later else title
    assert sorted(ROW.findall(text)) == [(name[:4], name, title) for name, title in sorted(expected.items())]
    rooms = [[number for number, _, _ in ROW.findall(room)] for room in text.split("\n## ")[1:]]
    assert rooms == [sorted(room) for room in rooms]
    assert all(rooms)
