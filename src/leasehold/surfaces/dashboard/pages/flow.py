"""Flow: a graph of the jobs that depend on a job or that it depends on, with their states."""

from __future__ import annotations

from collections import Counter
from typing import Any

from leasehold.surfaces.dashboard.flow_layout import HEIGHT, WIDTH, drawing_of
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.page_request import PageRequest

MOST = 100


def read(page_request: PageRequest) -> dict[str, Any]:
    job = page_request.caller.job(
        page_request.operations.find_id(str(page_request.request.path_params["id"]))
    )
    page_request.caller.check_all_queues()  # related jobs may be in any queue
    flow = page_request.operations.read_flow(job.id, MOST)
    return {
        "job": job.__row__,
        "flow": flow,
        "drawing": drawing_of(flow),
        "box_width": WIDTH,
        "box_height": HEIGHT,
        "counts": Counter(node.state.value for node in flow.nodes),
    }


PAGE = Page("jobs/{id}/flow", "jobs", "flow.html", read)
