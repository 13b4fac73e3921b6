"""Flow: the jobs that are tied to one, drawn, with the state of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from leasehold.surfaces.dashboard.flow_layout import HEIGHT, WIDTH, drawing_of
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.visit import Visit

MOST = 100


def read(visit: Visit) -> dict[str, Any]:
    job = visit.who.job(visit.operations.find_id(str(visit.request.path_params["id"])))
    visit.who.check_all_queues()  # what it is tied to may be anywhere
    flow = visit.operations.read_flow(job.id, MOST)
    return {
        "job": job.__row__,
        "flow": flow,
        "drawing": drawing_of(flow),
        "box_width": WIDTH,
        "box_height": HEIGHT,
        "counts": Counter(node.state.value for node in flow.nodes),
    }


PAGE = Page("jobs/{id}/flow", "jobs", "flow.html", read)
