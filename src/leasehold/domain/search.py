"""Search: find jobs by text in their arguments or error, by time and by id prefix."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from leasehold.domain.checks.ids import id_prefix
from leasehold.domain.checks.instants import checked_instant
from leasehold.domain.checks.texts import checked_text
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.records import ALL, Filter, Summary
from leasehold.domain.sensitive import hidden_arguments

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
    """Created then or later."""
    until: datetime | None = None
    """Created before."""
    id_prefix: str | None = None
    """The beginning of the id: six digits or more."""


@frozen
class SearchPage:
    """One page of a search, newest first. It may have fewer jobs than requested, or none, and still a `next`."""

    jobs: list[Summary]
    next: str | None
    """The cursor of the next page; None: there are no more jobs."""
    looked: int
    """How many jobs this page has read: with a text at most 10,000, without one as many as it lists."""


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
    """Whether the needles are in what readers see of a job with sensitive arguments."""
    try:
        shown = json.dumps(
            json.loads(hidden_arguments(args, sensitive)), ensure_ascii=False, separators=(",", ":")
        )
    except (ValueError, AttributeError):
        shown = ""  # edited by hand: nothing shows which part is sensitive
    return _holds(shown, needles.in_args) or _holds(error or "", needles.in_error)


def _holds(text: str, needles: Sequence[str]) -> bool:
    spelled = (text.lower(), _lowered(text))
    return any(needle in one for needle in needles for one in spelled)


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def _lowered(text: str) -> str:
    return text.translate(_LOWER)
