"""Dependencies between jobs: what the end of a parent means for its child, and the flow, the graph that they form.

The store writes the decisions made here.

A parent has *ended* when it is succeeded, failed, timed out or cancelled. A paused or waiting parent has not ended:
its child keeps waiting. The decision is made once, in the transaction that ends the parent. A failed parent may be
resumed later, but its children were already decided: a child that waited for a possible resume might never end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from leasehold.domain import operate
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job, OnParentFailure
from leasehold.domain.outcome import Move
from leasehold.domain.states import FINAL, State

_ROOT_CAUSE = re.compile(r"job [0-9a-f-]{36} \(.+\) ended [a-z_]+")


@frozen
class EndedParent:
    """A parent that has ended: what its children need to know about it."""

    id: str
    task: str
    state: State
    reason: str | None

    def meets(self, on_failure: OnParentFailure) -> bool:
        return self.state is State.SUCCEEDED or on_failure == "run"


def judge(child: Job, parents: Sequence[tuple[EndedParent, OnParentFailure]], now: datetime) -> Move | None:
    """Decide what happens to a child whose parents have just ended; each parent comes with the child's setting for its
    failure. None: the child has ended itself, and nothing changes."""
    if child.state in FINAL:
        return None
    failed = next((parent for parent, on_failure in parents if not parent.meets(on_failure)), None)
    if failed is not None:
        return operate.cancel(child, now=now, reason=explained(failed))
    left = replace(child, unmet=max(0, child.unmet - len(parents)))
    if left.unmet or left.held or left.state is not State.PENDING:
        return Move(child, left, None)
    due = max(child.available_at, now)
    place = None if child.lane is None else due
    return Move(child, replace(left, state=State.QUEUED, available_at=due, lane_at=place), None)


def explained(parent: EndedParent) -> str:
    """Say why the children cannot run. A parent that was cancelled for such a cause passes it on, so that every
    descendant names the job that failed and not its direct parent."""
    if parent.state is State.CANCELLED and parent.reason and _ROOT_CAUSE.fullmatch(parent.reason):
        return parent.reason
    return f"job {parent.id} ({parent.task}) ended {parent.state.value}"


# -- flows -------------------------------------------------------------------------------------------------------------

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
