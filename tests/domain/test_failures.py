"""Errors that differ only in numbers, ids, names and paths have one fingerprint; others do not."""

from __future__ import annotations

import time

import pytest

from leasehold.domain.search import LONGEST_FINGERPRINT, fingerprint, first_line


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "timeout after 31 s for job 019a0000-0000-7000-8000-0000000000a1",
            "timeout after <number> s for job <id>",
        ),
        ("timeout after 1.5 s for job 019a…", "timeout after <number> s for job <hex>…"),
        ("KeyError: 'user-17'\n  File …", "KeyError: <text>"),
        ('ValueError: no such user "ann"', "ValueError: no such user <text>"),
        ("can't open 'a b' for `me`", "can't open <text> for <text>"),
        ("[Errno 2] No such file: /srv/data/x.csv", "[Errno <number>] No such file: <path>"),
        ("cannot read C:\\temp\\x.txt", "cannot read <path>"),
        ("404 for https://example.com/a?b=1 now", "<number> for <url> now"),
        ("<object at 0x7f0c12ab>", "<object at <hex>>"),
        ("commit 3f2a9bc1 is gone", "commit <hex> is gone"),
        ("sha256 of 12 files, 3 wrong", "sha256 of <number> files, <number> wrong"),
        ("at 12:30:01,5 in worker-3", "at <number> in worker-<number>"),
        ("either/or is  fine", "either/or is fine"),
        ("\n  first \n second", "first"),
        ("", ""),
        (None, ""),
    ],
)
def test_what_differs_from_job_to_job_is_a_mark(error: str | None, expected: str):
    assert fingerprint(error) == expected


def test_a_fingerprint_is_short_however_long_the_line_is():
    line = "word " * 5000
    assert len(fingerprint(line)) <= LONGEST_FINGERPRINT + 1
    assert first_line(line).endswith("…")


@pytest.mark.parametrize("piece", ["'", '"', "`", "/a", "0x", "a1", "1.", "\\'", "file:///", "0-"])
def test_no_line_takes_long(piece: str):
    begin = time.perf_counter()
    fingerprint(piece * 10_000)
    assert time.perf_counter() - begin < 1
