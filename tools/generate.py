"""Writes what is generated: the state diagram in ARCHITECTURE.md, the tables of states and the map of the source in
docs/internals, the picture of the states, the reference, the verbs of the store, llms.txt, the site's navigation.

python -m tools.generate           write them
python -m tools.generate --check   fail if one is not current
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from leasehold.domain.settle import __doc__ as settle_doc
from leasehold.domain.states import FINAL, HALTED, LIVE, TRANSITIONS, State, Trigger
from leasehold.stores.open import open_store
from tests.servers import PostgresServer
from tools.llms import llms_text
from tools.nav import with_nav
from tools.reference import internals_pages, reference_pages
from tools.reference.sql import postgres_columns
from tools.source_map import source_map
from tools.state_picture import states_svg

ROOT = Path(__file__).resolve().parent.parent


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
    docs = ROOT / "docs"
    return {
        **with_generated(ROOT / "ARCHITECTURE.md", diagram=diagram()),
        **with_generated(docs / "internals" / "states.md", transitions=transitions(), settle=settle_table()),
        docs / "internals" / "map.md": source_map(ROOT / "src" / "leasehold"),
        docs / "images" / "states.svg": states_svg(),
        **{docs / "reference" / name: text for name, text in reference_pages(_jobs_view()).items()},
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


def with_generated(path: Path, **parts: str) -> dict[Path, str]:
    """The document with these parts at their places: between `<!-- generated: NAME -->` and `<!-- end -->`."""
    text = path.read_text(encoding="utf-8")
    for name, body in parts.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{path.relative_to(ROOT)} has no place for the generated {name}")
        text = pattern.sub(lambda match, body=body: match.group(1) + body + match.group(2), text)
    return {path: text}


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
    events = list(Trigger)
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


def _jobs_view() -> dict[str, str]:
    """The columns of the view `jobs` on a PostgreSQL server, after all migrations."""
    with PostgresServer(18, fsync=False) as server:
        url = server.create_database("leasehold")
        store = open_store(url)
        store.upgrade()
        store.close()
        return postgres_columns(url)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
