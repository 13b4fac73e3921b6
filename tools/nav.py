"""The navigation of the docs site: every page of docs/, in the order of the lists below.

A page that no list names goes to the end of its folder's section, so a new page is never left out.
"""

from __future__ import annotations

import re
from pathlib import Path

Nav = list["str | dict[str, str | Nav]"]

_START = {"Home": "index.md", "Quickstart": "quickstart.md", "Tutorial": "tutorial.md"}
_ELSEWHERE = {"examples.md", "mission.md"}
_GUIDES = {
    "Web frameworks": ("fastapi", "django", "flask", "sqlalchemy"),
    "Patterns": ("llm-calls", "fan-out", "human-approval", "errors", "annotations", "testing"),
    "Running it": ("deploy-systemd", "deploy-docker", "deploy-kubernetes", "operations", "upgrading"),
    "Watching it": ("dashboard", "monitoring", "metrics", "logs", "opentelemetry", "sentry"),
    "From other programs": ("http", "mcp", "remote", "rq"),
    "Moving from other queues": (
        "from-celery",
        "from-rq",
        "from-procrastinate",
        "from-dbos",
        "from-temporal",
    ),
}
_CONCEPTS = {
    "The basics": ("overview", "lease", "results", "streaming", "explain", "stop"),
    "Order and limits": ("lanes", "schedules", "limits", "budgets", "run-now"),
    "Long and many-part work": ("steps", "workflows", "groups", "questions"),
    "Where work runs": ("executions", "processes", "deliver", "performance"),
    "Beside your own data": ("transactions", "mirror", "hooks", "tenants"),
}
_REFERENCE = ("settings", "cli", "python", "http", "errors", "environment", "metrics", "sql")
_PLACE = re.compile(r"^nav: # generated\n.*?^(?=# end of nav$)", re.MULTILINE | re.DOTALL)


def with_nav(text: str, docs: Path) -> str:
    """The text of mkdocs.yml with the navigation that it should have."""
    if not _PLACE.search(text):
        raise SystemExit("mkdocs.yml has no place for the generated navigation")
    return _PLACE.sub(lambda _: "nav: # generated\n" + "".join(_lines(nav_of(docs), 1)), text)


def nav_of(docs: Path) -> Nav:
    top = {path.name for path in docs.glob("*.md")} - _ELSEWHERE
    nav: Nav = [{title: name} for title, name in _START.items() if name in top]
    nav += sorted(top - set(_START.values()))
    nav.append({"Guides": _grouped(docs, "guides", _GUIDES)})
    nav.append({"Concepts": _grouped(docs, "concepts", _CONCEPTS)})
    nav.append({"Reference": _flat(docs, "reference", _REFERENCE)})
    nav.append("examples.md")
    nav.append({"Internals": _flat(docs, "internals", ())})
    nav.append({"Decisions": _flat(docs, "decisions", ("README",))})
    nav.append({"Measured": ["mission.md", *_flat(docs, "measured", ())]})
    return [entry for entry in nav if isinstance(entry, str) or all(entry.values())]


def _flat(docs: Path, folder: str, order: tuple[str, ...]) -> Nav:
    there = {path.stem for path in (docs / folder).glob("*.md")}
    first = ("index", *order)
    names = [name for name in first if name in there] + sorted(there - set(first))
    return [f"{folder}/{name}.md" for name in names]


def _grouped(docs: Path, folder: str, groups: dict[str, tuple[str, ...]]) -> Nav:
    there = {path.stem for path in (docs / folder).glob("*.md")}
    nav: Nav = [f"{folder}/index.md"] if "index" in there else []
    known = {"index"}
    for title, names in groups.items():
        known |= set(names)
        if found := [f"{folder}/{name}.md" for name in names if name in there]:
            nav.append({title: [*found]})
    if others := sorted(there - known):
        nav.append({"More": [f"{folder}/{name}.md" for name in others]})
    return nav


def _lines(nav: Nav, depth: int) -> list[str]:
    lines = []
    for entry in nav:
        if isinstance(entry, str):
            lines.append(f"{'  ' * depth}- {entry}\n")
            continue
        for title, below in entry.items():
            own = f" {below}" if isinstance(below, str) else ""
            lines += [f"{'  ' * depth}- {title}:{own}\n", *_lines([] if own else list(below), depth + 2)]
    return lines
