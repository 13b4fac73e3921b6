"""docs/grafana/leasehold.json can be imported, and asks for what is emitted; so do the alerts of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from leasehold.domain.metrics import Histogram, LeaseAge, Metrics, OutcomeLabel, ReadyAge, Rollup, SlotUse
from leasehold.domain.records import QueueCount
from leasehold.domain.states import State
from leasehold.surfaces.prometheus import text_of
from tests.docs.pages import DOCS, blocks

BOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "leasehold.json").read_text(encoding="utf-8"))

# Families that no panel shows, and why.
LEFT_OUT: dict[str, str] = {}

EMITTED = text_of(
    Metrics(
        totals=[Rollup("q", "k", "succeeded", 1, Histogram(), Histogram())],
        jobs=[QueueCount("q", "k", State.QUEUED, 1)],
        ready=[ReadyAge("q", 1.0)],
        leases=[LeaseAge("q", "k", 1.0, 1.0)],
        slots=[SlotUse("s", 1, 2)],
        open_questions=1,
        workers=1,
        draining=0,
        places=1,
    )
)
FAMILIES = set(re.findall(r"^# TYPE (\w+)", EMITTED, re.MULTILINE))
SAMPLES = {
    name: set(re.findall(r'(\w+)="', labels))
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", EMITTED, re.MULTILINE)
}
"""Labels by the name of the sample."""
VALUES = {
    "outcome": set(get_args(OutcomeLabel)),
    "state": {state.value for state in State} | {"serving", "draining"},
}

SELECTED = re.compile(r"\b(leasehold_\w+)(?:\{([^}]*)\})?")
MATCHED = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')


def queries() -> Iterator[str]:
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (one["definition"] for one in BOARD["templating"]["list"] if one["type"] == "query")


def alerts() -> list[str]:
    (rules,) = (text for text in blocks("guides/metrics.md", "yaml") if "alert:" in text)
    return re.findall(r"expr: (?:>\n)?(.*?)\n +(?:for|annotations):", rules, re.DOTALL)


def problems(query: str) -> Iterator[str]:
    found = SELECTED.findall(query)
    if not found:
        yield f"asks for no metric: {query}"
    for name, matchers in found:
        if name not in SAMPLES:
            yield f"{name} is not emitted"
            continue
        for label, value in MATCHED.findall(matchers):
            if label not in SAMPLES[name]:
                yield f"{name} has no label {label}"
            for word in value.split("|") if not value.startswith("$") else ():
                if word not in VALUES.get(label, {word}):
                    yield f"no {label} is called {word}"
    grouped = {name.strip() for names in re.findall(r"by \(([^)]*)\)", query) for name in names.split(",")}
    if extra := grouped - {label for name, _ in found for label in SAMPLES.get(name, ())}:
        yield f"is grouped by {extra}, which nothing in it has: {query}"


def test_every_query_asks_for_what_is_emitted():
    assert [problem for query in queries() for problem in problems(query)] == []


def test_every_alert_of_the_page_asks_for_what_is_emitted():
    found = alerts()
    assert len(found) == 7
    assert [problem for query in found for problem in problems(query)] == []


def test_every_family_is_shown_or_left_out_for_a_reason():
    shown = {name for query in queries() for name, _ in SELECTED.findall(query)}
    families = {family for family in FAMILIES if shown & {family, f"{family}_bucket"}}
    assert families | LEFT_OUT.keys() == FAMILIES
    assert families & LEFT_OUT.keys() == set()


@pytest.mark.parametrize(
    "query",
    [
        "leasehold_nothing",
        'leasehold_jobs{outcome="failed"}',
        'leasehold_attempts_total{outcome=~"failed|gone"}',
        "sum by (slot) (leasehold_jobs)",
        "up",
    ],
)
def test_a_wrong_query_is_noticed(query: str):
    assert len(list(problems(query))) == 1


def test_it_can_be_imported_into_any_grafana():
    assert (BOARD["id"], BOARD["__inputs"]) == (None, [])
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    requested = [
        place
        for panel in BOARD["panels"]
        for place in (panel, *panel.get("targets", ()))
        if panel["type"] != "row"
    ]
    assert {place["datasource"]["uid"] for place in requested} == {"${datasource}"}
    used = set(re.findall(r"\$(\w+)", " ".join(queries()))) - {"__rate_interval"}
    assert used <= variables.keys()


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
