"""Groups similar failures by task and by the first line of the error, ignoring numbers, ids, quoted texts and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from leasehold.domain.frozen import frozen
from leasehold.domain.states import State

FAILED_STATES = (State.FAILED, State.TIMED_OUT)
MOST_FAILURES = 10_000
"""Most failed jobs that one call reads."""
MOST_GROUPS = 200
"""Most groups that one call returns."""
LONGEST_MESSAGE = 500
LONGEST_FINGERPRINT = 200

_MARKS = [
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"`<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`)"), "<text>"),
    (
        re.compile(r"(?<![\w.])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?|\b[a-z]:\\[\w.\\-]+", re.IGNORECASE),
        "<path>",
    ),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{4,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"(?<![a-z0-9])\d+(?:[.,:]\d+)*", re.IGNORECASE), "<number>"),
]
_SPACE = re.compile(r"\s+")


@frozen
class FailedJob:
    """The fields read of a job that failed or timed out."""

    id: str
    task: str
    finished_at: datetime
    error: str | None
    """The beginning of the error text."""


@frozen
class FailureGroup:
    """Failures of one task with the same fingerprint."""

    task: str
    fingerprint: str
    """The first line of the error, with marks such as `<number>` and `<id>` for what differs. Empty: no error text."""
    count: int
    newest: datetime
    oldest: datetime
    """When the last and the first of these jobs ended."""
    sample_id: str
    """The id of the job that ended last."""
    sample: str
    """The first line of that job's error."""


@frozen
class Failures:
    """Groups of failures, the largest first."""

    groups: list[FailureGroup]
    looked: int
    """How many failed and timed-out jobs were read, newest first."""
    cut: bool
    """There are more failures than were read."""
    left_out: int = 0
    """Groups that are not listed, the smallest: a list has at most 200."""


def first_line(error: str | None) -> str:
    """Return the first line of the error that is not blank, cut to a length that a list can show."""
    line = (error or "").strip().partition("\n")[0].strip()
    return line if len(line) <= LONGEST_MESSAGE else line[:LONGEST_MESSAGE] + "…"


def fingerprint(error: str | None) -> str:
    """Replace what differs from job to job in the first line: "timeout after <number> s for job <id>"."""
    line = first_line(error)
    for pattern, mark in _MARKS:
        line = pattern.sub(mark, line)
    line = _SPACE.sub(" ", line)
    return line if len(line) <= LONGEST_FINGERPRINT else line[:LONGEST_FINGERPRINT] + "…"


def grouped(jobs: Iterable[FailedJob]) -> list[FailureGroup]:
    """Group the jobs; the largest groups first, then the newest."""
    groups: dict[tuple[str, str], FailureGroup] = {}
    for job in jobs:
        key = (job.task, fingerprint(job.error))
        known = groups.get(key)
        if known is None:
            at = job.finished_at
            groups[key] = FailureGroup(*key, 1, at, at, job.id, first_line(job.error))
            continue
        known = replace(known, count=known.count + 1, oldest=min(known.oldest, job.finished_at))
        if job.finished_at > known.newest:
            known = replace(known, newest=job.finished_at, sample_id=job.id, sample=first_line(job.error))
        groups[key] = known
    return sorted(groups.values(), key=lambda group: (-group.count, -group.newest.timestamp(), group.task))
