"""Jobs page: the list of jobs, filtered by the query of the address.

The address holds the whole state of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import AwareDatetime

from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.records import Filter
from leasehold.domain.search import Search, SearchPage
from leasehold.domain.states import State, checked_states
from leasehold.operations.bulk import bulk_verbs
from leasehold.operations.verb import Param, Verb
from leasehold.surfaces.dashboard.page import DashboardPage
from leasehold.surfaces.dashboard.page_request import Form, PageRequest

# -- filters -----------------------------------------------------------------------------------------------------------

NAME_FIELDS = ("queue", "task", "lane", "group", "tag")
FIELDS = ("state", *NAME_FIELDS, "q", "since", "until")
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
        named = {name: self.fields.get(name) for name in NAME_FIELDS}
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


# -- arguments of a verb -----------------------------------------------------------------------------------------------


def inputs_of(verb: Verb[..., Any]) -> list[dict[str, Any]]:
    """The fields of a form for the arguments of a verb, but for hidden arguments."""
    return [
        {"name": one.name, "help": _help(one), "is_checkbox": one.kind is bool, "required": one.required}
        for one in verb.bulk_body
    ]


def _help(one: Param) -> str:
    text = (one.info and one.info.description) or ""
    return f"{text} Write 2h (from now), or 2026-11-19 09:00 (UTC)." if one.kind is AwareDatetime else text


def arguments_in(verb: Verb[..., Any], form: Form, now: Callable[[], datetime]) -> dict[str, Any]:
    """The arguments that were typed into these fields. Raises InvalidInput."""
    found = {one.name: _typed(one, form, now) for one in verb.bulk_body}
    return {name: value for name, value in found.items() if value is not None}


def _typed(one: Param, form: Form, now: Callable[[], datetime]) -> Any:
    if one.kind is bool:
        return form.has(one.name) or None
    text = form.text(one.name).strip() if one.required else form.maybe(one.name)
    if one.kind is AwareDatetime:
        return instant_of(text, one.name, now(), ahead=True)
    if one.kind is str or not text:
        return text
    return form.whole(one.name) if one.kind is int else form.json(one.name)


# -- jobs --------------------------------------------------------------------------------------------------------------

ROWS = 50


def find(
    page_request: PageRequest, requested: JobFilter, limit: int = ROWS, cursor: str | None = None
) -> tuple[Search, SearchPage]:
    """The search and its page. A text that looks like an id is searched as an id first."""
    operations, now = page_request.operations, page_request.operations.now()
    if requested.may_be_id:
        search = requested.search(now, by_id=True)
        found = operations.search_jobs(search, limit, cursor)
        if found.jobs or cursor is not None:
            return search, found
    search = requested.search(now)
    return search, operations.search_jobs(search, limit, cursor)


def read(page_request: PageRequest) -> dict[str, Any]:
    requested = filter_in(page_request.given())
    cursor = page_request.request.query_params.get("cursor") or None
    search, found = find(page_request, requested, cursor=cursor)
    cards = page_request.caller.visible_rows(page_request.operations.list_queues(jobs=()))  # only their names
    return {
        "requested": requested,
        "found": found,
        "jobs": page_request.caller.visible_rows(found.jobs),
        "by_text": search.text is not None,
        "cursor": cursor,
        "states": [state.value for state in State],
        "queues": sorted({card.queue for card in cards}),
        "tasks": sorted({card.task for card in cards}),
        "bulk_verbs": [verb for verb in bulk_verbs().values() if verb.word != "interrupt"],
    }


PAGE = DashboardPage("jobs", "jobs", "jobs.html", read)
