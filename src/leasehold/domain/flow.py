"""Flows: jobs linked by dependencies and follow-ups, as a graph."""

from __future__ import annotations

from typing import Literal

from leasehold.domain.frozen import frozen
from leasehold.domain.states import State

FlowRelation = Literal["waits_for", "follow_up"]


@frozen
class FlowNode:
    """A job in the flow."""

    id: str
    task: str
    state: State
    error: str | None = None
    """The first line of its error."""


@frozen
class FlowEdge:
    """A link from an earlier job to a later one."""

    from_id: str
    to_id: str
    relation: FlowRelation
    """`waits_for`: the later job waits for the earlier. `follow_up`: the earlier job's handler enqueued the later."""
    met: bool | None = None
    """Whether the later job no longer has to wait. None: it does not wait for the earlier one."""


@frozen
class Flow:
    """All jobs linked to one job, directly or through others, in either direction."""

    job_id: str
    """The id of the requested job."""
    nodes: list[FlowNode]
    """The jobs: the requested one first, then the nearest."""
    edges: list[FlowEdge]
    """The links between these jobs."""
    cut: bool
    """There are more jobs, or more links, than are listed."""


@frozen
class Tie:
    """A link of the requested job, and the job at its other end."""

    edge: FlowEdge
    other: FlowNode
