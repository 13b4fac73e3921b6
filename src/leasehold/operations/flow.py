"""A flow: the graph around a job, read level by level, one statement a level however many jobs it has."""

from __future__ import annotations

from collections import Counter

from leasehold.domain.checks.numbers import check_page
from leasehold.domain.failures import first_line
from leasehold.domain.flow import Flow, FlowEdge, FlowNode
from leasehold.operations.arguments import checked_job_id
from leasehold.operations.local import LocalOperator

TIES = 10
"""Ties of each relation that one level reads, for each job of the limit."""


class FlowOperations(LocalOperator):
    def read_flow(self, job_id: str, limit: int = 100) -> Flow:
        """All jobs that are tied to this one by waiting or as follow-ups, directly or through others, whichever way: up
        to `limit` of them, the nearest. Those that were pruned are left out, and what was tied through them alone.
        Raises JobNotFound."""
        check_page(limit)
        store, job_id = self._store, checked_job_id(job_id)
        job = store.get(job_id)
        error = first_line(job.error) if job.error else None
        nodes = {job_id: FlowNode(job_id, job.task, job.state, error)}
        edges: dict[tuple[str, str, str], FlowEdge] = {}
        level, most, cut = [job_id], TIES * limit, False
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
