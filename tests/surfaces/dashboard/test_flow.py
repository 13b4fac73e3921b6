"""A flow is drawn with the state of each of its jobs."""

from __future__ import annotations

import re

from leasehold import Leasehold
from leasehold.domain.dependencies import Flow, FlowEdge, FlowNode
from leasehold.domain.states import State
from leasehold.surfaces.dashboard.pages.flow import WIDTH, drawing_of
from tests.surfaces.dashboard.conftest import Viewer


def test_every_job_of_a_flow_is_drawn_and_linked(app: Leasehold, viewer: Viewer):
    first = app.enqueue("add", {"a": 1})
    middle = [app.enqueue("add", {"a": n}, after=[first]) for n in (2, 3)]
    last = app.enqueue("fail", {}, after=middle)
    page = viewer.page(f"/jobs/{middle[0].id}/flow")
    boxes = set(re.findall(r'<a href="/jobs/([0-9a-f-]{36})" aria-label="[^"]*, (?:queued|pending)"', page))
    assert boxes == {first.id, *(job.id for job in middle), last.id}
    assert page.count('class="edge open"') == 4
    assert f"/jobs/{first.id}/flow" in viewer.page(f"/jobs/{first.id}")


def test_what_comes_later_stands_further_to_the_right_and_no_box_covers_another():
    ids = ["a", "b", "c", "d", "e"]
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"), ("d", "e")]
    flow = Flow(
        "a",
        [FlowNode(one, "k", State.QUEUED) for one in ids],
        [FlowEdge(one, other, "waits_for", False) for one, other in edges],
        False,
    )
    drawing = drawing_of(flow)
    place = {box.node.id: (box.x, box.y) for box in drawing.boxes}
    assert all(place[one][0] + WIDTH < place[other][0] for one, other in edges)
    assert len(set(place.values())) == len(ids)
    assert all(x + WIDTH <= drawing.width for x, _ in place.values())


def test_a_circle_is_drawn_too():
    flow = Flow(
        "a",
        [FlowNode("a", "k", State.QUEUED), FlowNode("b", "k", State.QUEUED)],
        [FlowEdge("a", "b", "follow_up"), FlowEdge("b", "a", "follow_up")],
        True,
    )
    assert len(drawing_of(flow).boxes) == 2
