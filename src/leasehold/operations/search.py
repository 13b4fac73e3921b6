"""Search: finds jobs by text, by the start of an id, by failure, and by flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from leasehold.domain.checks.ids import LOWEST_ID, id_prefix
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.dependencies import Flow, FlowEdge, FlowNode
from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.records import ALL, Filter, Page
from leasehold.domain.search import (
    FAILED_STATES,
    MOST_FAILURES,
    MOST_GROUPS,
    FailedJob,
    Failures,
    Search,
    SearchPage,
    checked_search,
    first_line,
    grouped,
)
from leasehold.operations import jobs
from leasehold.operations.arguments import checked_job_id
from leasehold.operations.jobs import storable_filter
from leasehold.operations.local import LocalOperator

MOST_NAMED = 5
"""Ids that an error lists if the start of an id is ambiguous."""


class SearchOperations(LocalOperator):
    def list_jobs(self, filter: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        return self.call(
            jobs.list_jobs,
            state=list(filter.states),
            queue=filter.queue,
            task=filter.task,
            lane=filter.lane,
            group=filter.group,
            tag=filter.tag,
            limit=limit,
            cursor=cursor,
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
        """Return the id that begins with this text. Raises JobNotFound if none does, InvalidInput if several do."""
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
        """Return, for each id, the shortest prefix that `find_id` accepts."""
        return self._store.short_ids(ids)


# -- failures ----------------------------------------------------------------------------------------------------------

MOST_READS = 10
"""Bound on the reads: a filter without an index finds few jobs per read."""


class FailureOperations(LocalOperator):
    def list_failures(self, limit: int = 1000, filter: Filter = ALL) -> Failures:
        """List the failed and timed-out jobs that were enqueued last, grouped by task and by what their errors have in
        common. The filter's other states are ignored."""
        check_page(limit, MOST_FAILURES)
        states = tuple(state for state in FAILED_STATES if not filter.states or state in filter.states)
        if not states:
            return Failures([], 0, False)
        kept = replace(storable_filter(filter), states=states)
        jobs: list[FailedJob] = []
        before: str | None = None
        for _ in range(MOST_READS):
            found, before = self._store.find_failures(kept, limit - len(jobs), before)
            jobs += found
            if before is None or len(jobs) == limit:
                break
        groups = grouped(jobs)
        left_out = max(0, len(groups) - MOST_GROUPS)
        return Failures(groups[:MOST_GROUPS], len(jobs), before is not None, left_out)


# -- flows -------------------------------------------------------------------------------------------------------------

MOST_TIES = 10
"""Ties of each relation that one level reads, as a multiple of `limit`."""


class FlowOperations(LocalOperator):
    def read_flow(self, job_id: str, limit: int = 100) -> Flow:
        """Return the nearest jobs tied to this one in either direction, up to `limit`, directly or through others: as
        parents, children or follow-ups. The flow has no pruned jobs, and no jobs tied only through pruned ones. Raises
        JobNotFound."""
        check_page(limit)
        store, job_id = self._store, checked_job_id(job_id)
        job = store.get(job_id)
        error = first_line(job.error) if job.error else None
        nodes = {job_id: FlowNode(job_id, job.task, job.state, error)}
        edges: dict[tuple[str, str, str], FlowEdge] = {}
        level, most, cut = [job_id], MOST_TIES * limit, False
        while level:
            ties = store.ties(level, most)
            read = Counter((tie.edge.relation, tie.other.id == tie.edge.to_id) for tie in ties)
            cut = cut or most in read.values()
            level = []
            for tie in ties:
                edge = tie.edge
                edges[edge.from_id, edge.to_id, edge.relation] = edge
                if tie.other.id not in nodes:
                    if len(nodes) == limit:
                        cut = True
                        continue
                    nodes[tie.other.id] = tie.other
                    level.append(tie.other.id)
        shown = [edge for edge in edges.values() if edge.from_id in nodes and edge.to_id in nodes]
        return Flow(job_id, list(nodes.values()), shown, cut)
