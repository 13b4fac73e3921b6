"""Filters of jobs, from the query of a page's address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from leasehold.domain.checks.durations import seconds
from leasehold.domain.checks.states import checked_states
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.records import Filter
from leasehold.domain.search import Search

NAMES = ("queue", "task", "lane", "group", "tag")
FIELDS = ("state", *NAMES, "q", "since", "until")
_LIKE_AN_ID = re.compile(r"[0-9a-f-]{6,36}", re.IGNORECASE)


@frozen
class JobFilter:
    """The criteria of a page, as typed."""

    states: tuple[str, ...]
    fields: Mapping[str, str]
    """The criteria besides the states, without empty ones."""

    @property
    def query(self) -> dict[str, object]:
        return {"state": list(self.states), **self.fields}

    @property
    def is_for_all(self) -> bool:
        return not self.states and not self.fields

    @property
    def may_be_id(self) -> bool:
        return _LIKE_AN_ID.fullmatch(self.fields.get("q", "")) is not None

    def search(self, now: datetime, *, by_id: bool = False) -> Search:
        """The criteria as a search. `by_id`: `q` is the beginning of an id, not a text. Raises InvalidInput."""
        named = {name: self.fields.get(name) for name in NAMES}
        text = self.fields.get("q")
        return Search(
            filter=Filter(checked_states(self.states), **named),
            text=None if by_id else text,
            since=instant_of(self.fields.get("since"), "since", now),
            until=instant_of(self.fields.get("until"), "until", now),
            id_prefix=text if by_id else None,
        )


def filter_in(pairs: list[tuple[str, str]]) -> JobFilter:
    fields = {name: value.strip() for name, value in pairs if name in FIELDS[1:] and value.strip()}
    return JobFilter(
        tuple(dict.fromkeys(value for name, value in pairs if name == "state" and value)), fields
    )


def instant_of(text: str | None, field: str, now: datetime, *, ahead: bool = False) -> datetime | None:
    """The time from text. `2h` means two hours ago, or with `ahead` from now; a time without a zone is in UTC."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            span = timedelta(seconds=seconds(text, field))
            return now + span if ahead else now - span
        except (InvalidInput, OverflowError):
            raise InvalidInput(
                field, f"{text!r} is neither a time nor a span", "write 2h, or 2026-11-17 09:00"
            ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
