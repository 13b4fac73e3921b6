"""Search: finds jobs by text, time and id prefix, and groups similar failures."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from leasehold.domain.checks.ids import id_prefix
from leasehold.domain.checks.texts import checked_text
from leasehold.domain.checks.times import checked_instant
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.records import ALL, Filter, Summary
from leasehold.domain.sensitive import hidden_arguments
from leasehold.domain.states import State

LONGEST_TEXT = 1000
MOST_LOOKED = 10_000
"""Most jobs whose texts one page of a search reads."""
SLACK = timedelta(seconds=10)
"""Jobs are numbered in the order they are stored, and created nearly in that order: `since` and `until` may miss a job
whose creation time is further out of order than this."""


@frozen
class Search:
    """The criteria of a search: a job must match the filter and everything else."""

    filter: Filter = ALL
    text: str | None = None
    """Part of the job's arguments (as JSON), or of its error; upper and lower case are the same. Sensitive arguments
    are never searched."""
    since: datetime | None = None
    """Only jobs created at this time or later."""
    until: datetime | None = None
    """Only jobs created before this time."""
    id_prefix: str | None = None
    """The beginning of the id: six digits or more."""


@frozen
class SearchPage:
    """One page of a search, newest first. It may have fewer jobs than requested, or none, and still a `next`."""

    jobs: list[Summary]
    next: str | None
    """The cursor of the next page; None: there are no more jobs."""
    looked: int
    """How many jobs this page has read: at most 10,000 with a text; without one, as many as it lists."""


def checked_search(search: Search) -> Search | None:
    """Drop an empty text, convert times to UTC, normalise the prefix. None: no id can begin with the prefix."""
    text, prefix = search.text or None, search.id_prefix or None
    if prefix is not None:
        try:
            prefix = id_prefix(checked_text(prefix, "id_prefix", LONGEST_TEXT))
        except InvalidInput as error:
            raise InvalidInput("id_prefix", error.problem, error.remedy) from None
        if prefix is None:
            return None
    return replace(
        search,
        text=None if text is None else checked_text(text, "text", LONGEST_TEXT),
        since=None if search.since is None else checked_instant(search.since, "since"),
        until=None if search.until is None else checked_instant(search.until, "until"),
        id_prefix=prefix,
    )


class Needles(NamedTuple):
    """The texts to look for, in lower case as the database makes it: SQLite lowers ASCII letters only."""

    in_args: list[str]
    in_error: list[str]


def needles_of(text: str) -> Needles:
    spelled = (text, text.lower(), text.upper())
    escaped = (json.dumps(one, ensure_ascii=ascii)[1:-1] for one in spelled for ascii in (False, True))
    plain = {_lowered(one) for one in spelled}
    return Needles(sorted(plain | {_lowered(one) for one in escaped}), sorted(plain))


def is_found(needles: Needles, args: str, sensitive: Sequence[str], error: str | None) -> bool:
    """Return whether one of the needles is in the texts that readers see of a job with sensitive arguments."""
    try:
        shown = json.dumps(
            json.loads(hidden_arguments(args, sensitive)), ensure_ascii=False, separators=(",", ":")
        )
    except (ValueError, AttributeError):
        shown = ""  # edited by hand: which part is sensitive is unknown
    return _holds(shown, needles.in_args) or _holds(error or "", needles.in_error)


def _holds(text: str, needles: Sequence[str]) -> bool:
    spelled = (text.lower(), _lowered(text))
    return any(needle in one for needle in needles for one in spelled)


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def _lowered(text: str) -> str:
    return text.translate(_LOWER)


# -- similar failures --------------------------------------------------------------------------------------------------

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
