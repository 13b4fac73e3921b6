"""http.md: every route with who may call it; metrics.md: every metric."""

from __future__ import annotations

import re

from fastapi.routing import APIRoute

from leasehold import Leasehold
from leasehold.domain.metrics import BOUNDS, LeaseAge, Metrics, ReadyAge, Rollup, SlotUse
from leasehold.domain.records import QueueCount
from leasehold.domain.states import State
from leasehold.http import create_app
from leasehold.surfaces.http.routes import scope_of
from leasehold.surfaces.prometheus import text_of
from tools.reference.source import table

HTTP_HEAD = """# HTTP routes

Every route of the HTTP API. [The HTTP API](../guides/http.md) says how to call them; `GET /openapi.json` has the
whole schema of what goes in and out. The scope is what the caller's token needs; a route without one is open.
[Errors](errors.md#codes) lists what a refusal looks like.
"""
METRICS_HEAD = """# Metrics

Every metric of `GET /metrics` and `leasehold workers metrics`, in the text format of Prometheus.
[Metrics](../guides/metrics.md) says how to scrape them and which alerts to set.
"""


def http_page() -> str:
    lines = [HTTP_HEAD]
    for subject, rows in _routes().items():
        lines += [f"## {subject}", "", *table(["Route", "Scope", "What it does"], rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _routes() -> dict[str, list[list[str]]]:
    """By the first part of the path. An app that is not used opens no database."""
    found: dict[str, list[list[str]]] = {}
    for route in create_app(Leasehold("sqlite:///unused.db")).router.routes:
        if not isinstance(route, APIRoute):
            continue
        scope = scope_of(route.path, route.dependencies)
        subject = route.path.split("/")[2] if route.path.startswith("/v1/") else "Probes, metrics and schema"
        about = " ".join((route.endpoint.__doc__ or "").split())
        for method in sorted(route.methods):
            row = [
                f"`{method} {route.path_format}`",
                f"`{scope}`" if scope else "–",
                about.replace("|", "or"),
            ]
            found.setdefault(subject.capitalize() if subject.islower() else subject, []).append(row)
    # Whether a route is derived or by hand must not show.
    first, *others = found
    return {first: found[first], **{name: sorted(found[name], key=_place) for name in sorted(others)}}


def _place(row: list[str]) -> tuple[str, str]:
    """By path, then method."""
    method, _, path = row[0].strip("`").partition(" ")
    return path, method


def metrics_page() -> str:
    text = text_of(_example())
    rows = []
    for name, about in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        task = re.search(rf"^# TYPE {name} (\w+)$", text, re.MULTILINE)
        sample = re.search(rf"^{name}(?:_count)?(?:{{(.*)}})? ", text, re.MULTILINE)
        assert task is not None, name
        assert sample is not None, name
        labels = re.findall(r"(\w+)=", sample[1] or "")
        rows.append([f"`{name}`", task[1], ", ".join(f"`{one}`" for one in labels) or "–", about])
    bounds = ", ".join(f"{one:g}" for one in BOUNDS)
    after = (
        f"Every histogram has these upper bounds, in seconds: {bounds}, and one bucket for all above them."
    )
    return "\n".join([METRICS_HEAD, *table(["Metric", "Type", "Labels", "Meaning"], rows), "", after]) + "\n"


def _example() -> Metrics:
    """One sample of each, for its labels."""
    return Metrics(
        totals=[Rollup("q", "k", "succeeded", 1)],
        jobs=[QueueCount("q", "k", State.QUEUED, 1)],
        ready=[ReadyAge("q", 1.0)],
        leases=[LeaseAge("q", "k", 1.0, 1.0)],
        slots=[SlotUse("s", 1, 2)],
        open_questions=0,
        workers=1,
        draining=0,
        places=1,
    )
