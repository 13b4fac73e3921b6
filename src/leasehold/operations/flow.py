"""A flow: the graph around a job, read level by level, with one statement per level."""

from __future__ import annotations

from collections import Counter

from leasehold.domain.checks.numbers import check_page
from leasehold.domain.failures import first_line
from leasehold.domain.flow import Flow, FlowEdge, FlowNode
from leasehold.operations.arguments import checked_job_id
from leasehold.operations.local import LocalOperator

TIES = 10
"""Ties of each relation that a level reads, per job of the limit."""


class FlowOperations(LocalOperator):
    def read_flow(self, job_id: str, limit: int = 100) -> Flow:
        """Return the jobs tied to this one in either direction, as parents, children or follow-ups, directly or through
        others: the nearest, up to `limit`. Pruned jobs are left out, and jobs tied only through them. Raises
        JobNotFound."""
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
