"""Writes what is generated: the state diagram and table in ARCHITECTURE.md, the picture of the states, the present
schemas, the reference, the verbs of the store, llms.txt, the site's navigation.

python -m tools.generate           write them
python -m tools.generate --check   fail if one is not current
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from leasehold.domain.settle import __doc__ as settle_doc
from leasehold.domain.states import FINAL, HALTED, LIVE, TRANSITIONS, Event, State
from leasehold.stores.base.statements import read_migrations
from leasehold.stores.open import open_store
from tests.servers import PostgresServer
from tools.llms import llms_text
from tools.nav import with_nav
from tools.reference import internals_pages, reference_pages
from tools.state_picture import states_svg

ROOT = Path(__file__).resolve().parent.parent
STORES = ROOT / "src" / "leasehold" / "stores"


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    # The second is made of the pages that the first has written.
    stale = [*refresh(from_source(), check), *refresh(from_pages(), check)]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if check:
        print(
            f"not current: {names}; run: python -m tools.generate" if stale else "generated files are current"
        )
        return 1 if stale else 0
    print(f"written: {names}" if stale else "nothing to write")
    return 0


def from_source() -> dict[Path, str]:
    postgres, docs = postgres_schema(), ROOT / "docs"
    return {
        ROOT / "ARCHITECTURE.md": architecture((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")),
        STORES / "sqlite" / "schema.sql": sqlite_schema(),
        STORES / "postgres" / "schema.sql": postgres,
        docs / "images" / "states.svg": states_svg(),
        **{docs / "reference" / name: text for name, text in reference_pages(postgres).items()},
        **{docs / "internals" / name: text for name, text in internals_pages().items()},
    }


def from_pages() -> dict[Path, str]:
    return {
        ROOT / "llms.txt": llms_text(ROOT),
        ROOT / "mkdocs.yml": with_nav((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), ROOT / "docs"),
    }


def refresh(wanted: dict[Path, str], check: bool) -> list[Path]:
    """Those that are not current; written, unless this is a check."""
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in [] if check else stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    return stale


def architecture(text: str) -> str:
    for name, body in (("diagram", diagram()), ("transitions", transitions()), ("settle", settle_table())):
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"ARCHITECTURE.md has no place for the generated {name}")
        text = pattern.sub(lambda match, body=body: match.group(1) + body + match.group(2), text)
    return text


def diagram() -> str:
    """One arrow per pair of states; the events that lead from one to the other stand on it."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, event), targets in TRANSITIONS.items():
        for target in targets:
            if target is not state:
                arrows.setdefault((state, target), []).append(event.value)
    order = {state: place for place, state in enumerate(State)}
    lines = [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> queued: enqueue",
        "    [*] --> pending: enqueue, held",
    ]
    for (state, target), events in sorted(arrows.items(), key=lambda item: [order[s] for s in item[0]]):
        lines.append(f"    {state.value} --> {target.value}: {', '.join(sorted(events))}")
    lines += [f"    {state.value} --> [*]" for state in State if state in FINAL]
    return "\n".join([*lines, "```", ""])


def transitions() -> str:
    """Every (state, event) pair; an empty cell is refused and changes nothing."""
    events = list(Event)
    lines = ["| state | kind | " + " | ".join(event.value for event in events) + " |"]
    lines.append("|" + "---|" * (len(events) + 2))
    kinds = [(LIVE, "live"), (HALTED, "halted"), (FINAL, "final")]
    for state in State:
        kind = next(name for states, name in kinds if state in states)
        cells = []
        for event in events:
            targets = TRANSITIONS.get((state, event), frozenset())
            cells.append(", ".join(s.value for s in State if s in targets))
        lines.append(f"| **{state.value}** | {kind} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def settle_table() -> str:
    """The table as it stands at the door of the function that decides."""
    rows = [line for line in (settle_doc or "").splitlines() if line.startswith("    ")]
    return "\n".join(["```text", *(line.removeprefix("    ") for line in rows), "```", ""])


def sqlite_schema() -> str:
    connection = sqlite3.connect(":memory:")
    for text in read_migrations("leasehold.stores.sqlite").values():
        connection.executescript(text)
    rows = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name, type DESC, name"
    )
    statements = [row[0] + ";" for row in rows]
    connection.close()
    return _schema_file("SQLite", statements)


def postgres_schema() -> str:
    """As the server itself tells it, after all migrations."""
    with PostgresServer(18, fsync=False) as server:
        url = server.create_database("leasehold")
        store = open_store(url)
        store.upgrade()
        store.close()
        dump = [str(server.binaries / "pg_dump"), "--schema-only", "--no-owner", "--schema=leasehold", url]
        text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    # Settings of the session, and comments that name the server's version.
    kept = [
        line for line in text.splitlines() if not line.startswith(("--", "SET ", "SELECT pg_catalog", "\\"))
    ]
    return _schema_file("PostgreSQL", [re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()])


def _schema_file(database: str, statements: list[str]) -> str:
    head = (
        f"-- The present {database} schema, to read. Generated by `python -m tools.generate`; do not edit.\n"
    )
    return head + "\n" + "\n\n".join(statements) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
