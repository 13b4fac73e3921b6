"""Search: jobs by what stands in them. What is asked, what was found, and what counts as a match."""

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
from leasehold.domain.sensitive import hidden_arguments
from leasehold.domain.views import ALL, Filter, Summary

LONGEST_TEXT = 1000
MOST_LOOKED = 10_000
"""Jobs of one page of search whose texts are looked into."""
SLACK = timedelta(seconds=10)
"""Jobs are stored in the order of their numbers, and created nearly in that order: a job whose time of creation is
further out of it than this may be missed by `since` and `until`."""


@frozen
class Search:
    """Which jobs: those that the filter finds and that meet all the rest."""

    filter: Filter = ALL
    text: str | None = None
    """Part of the job's arguments (as JSON), or of its error; upper and lower case are the same. What is in sensitive
    arguments is never found."""
    since: datetime | None = None
    """Created then or later."""
    until: datetime | None = None
    """Created before."""
    id_prefix: str | None = None
    """How its id begins: six digits or more."""


@frozen
class Found:
    """One page of a search, newest first. It may have fewer jobs than asked for, or none, and still a `next`."""

    jobs: list[Summary]
    next: str | None
    """The cursor to go on with; None: there are no more."""
    looked: int
    """How many jobs were looked into for this page: with a text at most 10,000, without one those that it has."""


def checked_search(search: Search) -> Search | None:
    """Without a text that is empty, times in UTC, the prefix in its one spelling. None: no id begins so."""
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
    """What to look for in texts that the database has made lower case: SQLite does so with the letters of ASCII."""

    in_args: list[str]
    in_error: list[str]


def needles_of(text: str) -> Needles:
    spelled = (text, text.lower(), text.upper())
    escaped = (json.dumps(one, ensure_ascii=ascii)[1:-1] for one in spelled for ascii in (False, True))
    plain = {_lowered(one) for one in spelled}
    return Needles(sorted(plain | {_lowered(one) for one in escaped}), sorted(plain))


def is_found(needles: Needles, args: str, sensitive: Sequence[str], error: str | None) -> bool:
    """Whether they are in what readers are shown of a job with sensitive arguments."""
    try:
        shown = json.dumps(
            json.loads(hidden_arguments(args, sensitive)), ensure_ascii=False, separators=(",", ":")
        )
    except (ValueError, AttributeError):
        shown = ""  # edited by hand: nobody knows what in it is sensitive
    return _holds(shown, needles.in_args) or _holds(error or "", needles.in_error)


def _holds(text: str, needles: Sequence[str]) -> bool:
    spelled = (text.lower(), _lowered(text))
    return any(needle in one for needle in needles for one in spelled)


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def _lowered(text: str) -> str:
    return text.translate(_LOWER)
