"""Search: jobs by what stands in them."""

from __future__ import annotations

from dataclasses import replace

from leasehold.domain.search import Found, Search, checked_search
from leasehold.operations.base import StoreDoor, kept_filter


class SearchOperations(StoreDoor):
    def search_jobs(self, search: Search, limit: int = 50, cursor: str | None = None) -> Found:
        """One page, newest first. With a text it looks into at most 10,000 jobs and says how many: an empty page with a
        `next` means "not among these". Ask for the next with `cursor=found.next`."""
        checked = checked_search(replace(search, filter=kept_filter(search.filter)))
        if checked is None:
            return Found([], None, 0)
        found = self._store.search_jobs(checked, limit, cursor)
        return replace(found, jobs=self._all_whole(found.jobs))
