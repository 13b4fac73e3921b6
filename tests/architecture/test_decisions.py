"""Decision records have the form that docs/decisions/README.md describes, and stand in its list."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEADING = re.compile(r"# (\d+)\. (\S.*)")
LATER = r"superseded by \[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\)"
STATUS = re.compile(rf"Status: (?:proposed|accepted|rejected|{LATER})(?:$|[.,] )")
ROW = re.compile(r"^\| \[(\d{4})\]\((\d{4}-[a-z0-9-]+\.md)\) \| (.+) \|$", re.MULTILINE)


def test_records_are_numbered_without_gaps():
    numbers = [int(path.name[:4]) for path in RECORDS]
    assert numbers
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_record_begins_with_its_number_its_title_and_its_status():
    wrong = []
    for path in RECORDS:
        heading, empty, status = path.read_text(encoding="utf-8").splitlines()[:3]
        found = HEADING.fullmatch(heading)
        if found is None or int(found[1]) != int(path.name[:4]) or empty or not STATUS.match(status):
            wrong.append(path.name)
    assert wrong == []


def test_the_list_has_every_record_once_and_in_order():
    listed = ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert [(number, name) for number, name, _ in listed] == [(path.name[:4], path.name) for path in RECORDS]
