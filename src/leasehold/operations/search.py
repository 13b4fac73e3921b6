"""Search: finds jobs by a text in them, or by the beginning of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leasehold.domain.checks.ids import LOWEST_ID, id_prefix
from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.records import Filter, Page
from leasehold.domain.search import Search, SearchPage, checked_search
from leasehold.operations import jobs
from leasehold.operations.jobs import storable_filter
from leasehold.operations.local import LocalOperator

MOST_NAMED = 5
"""Ids that an error names if a beginning is ambiguous."""


class SearchOperations(LocalOperator):
    def list_jobs(self, filter: Filter, limit: int = 50, before: str | None = None) -> Page:
        return self.call(
            jobs.list_jobs,
            state=list(filter.states),
            queue=filter.queue,
            task=filter.task,
            lane=filter.lane,
            group=filter.group,
            tag=filter.tag,
            limit=limit,
            cursor=before,
        )

    def search_jobs(self, search: Search, limit: int = 50, cursor: str | None = None) -> SearchPage:
        """Return one page, newest first. With a text it examines at most 10,000 jobs and says how many: an empty page
        with a `next` means "not among these". The next page: `cursor=found.next`."""
        checked = checked_search(replace(search, filter=storable_filter(search.filter)))
        if checked is None:
            return SearchPage([], None, 0)
        found = self._store.search_jobs(checked, limit, cursor)
        return replace(found, jobs=self._all_shown(found.jobs))

    def find_id(self, text: str) -> str:
        """Return the id that begins with this text. Raises JobNotFound, and InvalidInput if several begin so."""
        prefix = id_prefix(text)
        if prefix is None:
            raise JobNotFound(text)
        if len(prefix) == len(LOWEST_ID):
            return prefix
        found = self._store.find_ids(prefix, MOST_NAMED + 1)
        if not found:
            raise JobNotFound(text)
        if len(found) > 1:
            named = ", ".join(found[:MOST_NAMED]) + (" …" if len(found) > MOST_NAMED else "")
            raise InvalidInput("id", f"{text!r} is the beginning of several: {named}", "give more of it")
        return found[0]

    def short_ids(self, ids: Sequence[str]) -> dict[str, str]:
        """Return, for each id, the shortest beginning that `find_id` finds."""
        return self._store.short_ids(ids)
