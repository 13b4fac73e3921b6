"""Flow page: the jobs that are related to one job, drawn in columns, with their states."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from leasehold.domain.dependencies import Flow, FlowEdge, FlowNode
from leasehold.domain.frozen import frozen
from leasehold.surfaces.dashboard.page import DashboardPage
from leasehold.surfaces.dashboard.page_request import PageRequest

# -- layout ------------------------------------------------------------------------------------------------------------
# Pure.

WIDTH, HEIGHT = 224, 52
ACROSS, DOWN = 74, 18
MARGIN = 8


@frozen
class Box:
    node: FlowNode
    x: int
    y: int
    here: bool
    """Whether this is the job of the page."""


@frozen
class Line:
    edge: FlowEdge
    path: str
    """The path in SVG."""


@frozen
class Drawing:
    boxes: list[Box]
    lines: list[Line]
    width: int
    height: int


def drawing_of(flow: Flow) -> Drawing:
    columns = _columns(flow)
    places: dict[str, tuple[int, int]] = {}
    for number, ids in enumerate(columns):
        for row, job_id in enumerate(ids):
            places[job_id] = (MARGIN + number * (WIDTH + ACROSS), MARGIN + row * (HEIGHT + DOWN))
    boxes = [Box(node, *places[node.id], here=node.id == flow.job_id) for node in flow.nodes]
    return Drawing(
        boxes,
        [Line(edge, _path(places[edge.from_id], places[edge.to_id])) for edge in flow.edges],
        max((box.x for box in boxes), default=0) + WIDTH + MARGIN,
        max((box.y for box in boxes), default=0) + HEIGHT + MARGIN,
    )


def _columns(flow: Flow) -> list[list[str]]:
    """The ids of each column. A job is one column after the last of the jobs before it. Within a column, jobs follow
    the order of the jobs before them, so that few lines cross."""
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for edge in flow.edges:
        before[edge.to_id].append(edge.from_id)
        after[edge.from_id].append(edge.to_id)
    ids = [node.id for node in flow.nodes]
    depth = dict.fromkeys(ids, 0)
    waiting = {job_id: len(before[job_id]) for job_id in ids}
    ready = [job_id for job_id in ids if not waiting[job_id]]
    while ready:
        job_id = ready.pop()
        for other in after[job_id]:
            depth[other] = max(depth[other], depth[job_id] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for job_id in sorted(ids):
        columns[depth[job_id]].append(job_id)
    rows = {job_id: row for row, job_id in enumerate(columns[0])}
    for column in columns[1:]:
        column.sort(key=lambda job_id: _middle([rows[one] for one in before[job_id] if one in rows]))
        rows |= {job_id: row for row, job_id in enumerate(column)}
    return columns


def _middle(rows: list[int]) -> float:
    return sum(rows) / len(rows) if rows else 0.0


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + WIDTH, start[1] + HEIGHT // 2
    x2, y2 = end[0] - 7, end[1] + HEIGHT // 2
    bend = max(30, (x2 - x1) // 2)
    return f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


# -- flow --------------------------------------------------------------------------------------------------------------

MOST_NODES = 100


def read(page_request: PageRequest) -> dict[str, Any]:
    job = page_request.caller.job(
        page_request.operations.find_id(str(page_request.request.path_params["id"]))
    )
    page_request.caller.check_all_queues()  # related jobs may be in any queue
    flow = page_request.operations.read_flow(job.id, MOST_NODES)
    return {
        "job": job,
        "flow": flow,
        "drawing": drawing_of(flow),
        "box_width": WIDTH,
        "box_height": HEIGHT,
        "counts": Counter(node.state.value for node in flow.nodes),
    }


PAGE = DashboardPage("jobs/{id}/flow", "jobs", "flow.html", read)
