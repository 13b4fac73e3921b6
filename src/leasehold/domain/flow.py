"""A flow: jobs that are tied to each other, as a graph."""

from __future__ import annotations

from typing import Literal

from leasehold.domain.frozen import frozen
from leasehold.domain.states import State

FlowRelation = Literal["waits_for", "follow_up"]


@frozen
class FlowNode:
    """A job of the flow."""

    id: str
    kind: str
    state: State
    error: str | None = None
    """The first line."""


@frozen
class FlowEdge:
    """From the job that comes first to the one that comes after it."""

    from_id: str
    to_id: str
    relation: FlowRelation
    """`waits_for`: the second waits for the first. `follow_up`: the first has asked for the second."""
    met: bool | None = None
    """The one that waits need no longer do so. None: nobody waits."""


@frozen
class Flow:
    """All that is tied to a job, directly or through others, whichever way."""

    job_id: str
    """The job that was asked about."""
    nodes: list[FlowNode]
    """The nearest first, that job itself at the head."""
    edges: list[FlowEdge]
    """Between these nodes."""
    cut: bool
    """There are more jobs, or more ties, than are told."""


@frozen
class Tie:
    """A tie of a job that was asked about, and the job at its other end."""

    edge: FlowEdge
    other: FlowNode
