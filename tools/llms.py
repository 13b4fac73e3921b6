"""llms.txt: what there is to read, for language models that help people use Leasehold."""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = """# Leasehold

> Durable background jobs for Python in your own SQLite or PostgreSQL database. A worker holds a lease on each job and
> renews it while the work runs, so a crash is noticed and nothing runs twice. Jobs can be seen, paused, resumed,
> cancelled, budgeted and explained from Python, HTTP, MCP and the command line.

- Install it from a clone, it is not published yet: `pip install .`; with PostgreSQL `'.[postgres]'`, with the HTTP API
  `'.[server]'`, with the MCP server `'.[mcp]'`.
- A task is a function with `@app.task` on an `app = Leasehold()`; `task.enqueue(…)` stores a job; `leasehold worker
  module:app` runs jobs.
- Import public names from `leasehold`, errors from `leasehold.errors`, values for annotations from `leasehold.types`.
  Names with underscores are not public.

"""
_DESCRIPTIONS = {
    "quickstart": "Install it, write a task, run it, and see what happens when its worker is killed",
    "overview": "Job, worker, lease, queue, lane, group: what each word means",
    "logs": "What a worker logs, and how to attach tracing and error reports",
    "operations": "Databases, upgrades, workers, pruning, the audit, and what to do when something is stuck",
    "questions": "A job asks a person, and waits without a worker",
    "run-now": "Start work at once, or be refused because there is no room",
    "testing": "A worker and a clock for your own tests",
}
"""Of pages whose first sentence does not say what they are about."""
_SECTIONS = {"Start": ".", "Guides": "guides", "Concepts": "concepts", "Reference": "reference"}
_FIRST = ("index", "quickstart", "tutorial", "overview", "lease")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def llms_text(root: Path) -> str:
    docs = root / "docs"
    parts = [part for title, folder in _SECTIONS.items() for part in _section(docs, title, docs / folder)]
    more = ["- [Architecture](ARCHITECTURE.md): how the code is laid out", "- [Changelog](CHANGELOG.md)"]
    return _HEAD + "\n".join([*parts, "## Optional", "", *more]) + "\n"


def _section(docs: Path, title: str, folder: Path) -> list[str]:
    pages = sorted(folder.glob("*.md"), key=lambda page: (_place(page.stem), page.stem))
    return [f"## {title}", "", *(_line(docs, page) for page in pages), ""] if pages else []


def _place(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _line(docs: Path, page: Path) -> str:
    text = _COMMENT.sub("", _FENCE.sub("", page.read_text(encoding="utf-8"))).lstrip()
    title = text.partition("\n")[0].removeprefix("# ")
    link = f"[{title}](docs/{page.relative_to(docs).as_posix()})"
    if page.stem in _DESCRIPTIONS:
        return f"- {link}: {_DESCRIPTIONS[page.stem]}"
    paragraphs = [part.strip() for part in text.split("\n\n")[1:]]
    first = next(part for part in paragraphs if part and part[0] not in "#|<!")
    sentence = re.split(r"(?<=[.:?])\s", " ".join(first.split()))[0]
    text = _LINK.sub(r"\1", sentence).replace("*", "").rstrip(".:")
    return f"- {link}: {text}"
