"""Turns the figures of `make coverage` into docs/measured/coverage.md.

    python -m tools.coverage_page            after `coverage combine`; writes the page
    python -m tools.coverage_page tests/…    only some of the tests ran: prints it, and writes nothing

A part of the tests says little about the whole, so its figures never take the place of those of a whole run.
"""

from __future__ import annotations

import io
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "measured" / "coverage.md"
PACKAGE = "src/leasehold/"
LEAST = 15

ABOUT = """\
Written by `make coverage`: lines and branches of the package that the tests reach, on SQLite and PostgreSQL together,
in the test processes and in the workers, commands and servers that they start. A process that a test kills with
SIGKILL leaves no figures. Neither does a process that a test starts with an environment of its own. The tests of kills,
plans, pages, protocol models and applications are left out: they take long. So the true numbers are higher.
"""


@dataclass
class Figures:
    statements: int = 0
    missed: int = 0
    branches: int = 0
    missed_branches: int = 0

    def add(self, summary: Mapping[str, Any]) -> Figures:
        self.statements += summary["num_statements"]
        self.missed += summary["missing_lines"]
        self.branches += summary["num_branches"]
        self.missed_branches += summary["missing_branches"]
        return self

    @property
    def percent(self) -> float:
        """As coverage.py counts it: lines and branches alike."""
        everything = self.statements + self.branches
        return 100 * (1 - (self.missed + self.missed_branches) / everything) if everything else 100.0

    def cells(self) -> str:
        numbers = (self.statements, self.missed, self.branches, self.missed_branches)
        return " | ".join([*(f"{number:,}" for number in numbers), f"{self.percent:.1f} %"])


def main(arguments: list[str]) -> int:
    report = measured()
    text = page(report, arguments)
    if arguments:
        print(text)
        return 0
    PAGE.write_text(text, encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}; {total_of(report).percent:.1f} % of lines and branches")
    return 0


def measured() -> dict[str, Any]:
    """What `coverage combine` has left, as the JSON report has it."""
    coverage = Coverage(data_file=str(ROOT / ".coverage"), config_file=str(ROOT / "pyproject.toml"))
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(file))
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def page(report: Mapping[str, Any], arguments: list[str]) -> str:
    files: dict[str, Figures] = {}
    rooms: dict[str, Figures] = {}
    for path, file in sorted(report["files"].items()):
        name = Path(path).as_posix().partition(PACKAGE)[2] or path
        files[name] = Figures().add(file["summary"])
        rooms.setdefault(room_of(name), Figures()).add(file["summary"])
    command = f'make coverage ARGS="{" ".join(arguments)}"' if arguments else "make coverage"
    out = io.StringIO()
    out.write(f"# Test coverage\n\n{ABOUT}\n")
    out.write(
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit()}, Python {platform.python_version()}, `{command}`.\n\n"
    )
    out.write("| part | statements | missed | branches | missed | covered |\n|---|--:|--:|--:|--:|--:|\n")
    out.writelines(f"| {name} | {figures.cells()} |\n" for name, figures in sorted(rooms.items()))
    out.write(f"| **all** | {total_of(report).cells()} |\n\n")
    out.write(f"## The {LEAST} files with the most that is not reached\n\n")
    out.write("| file | statements | missed | branches | missed | covered |\n|---|--:|--:|--:|--:|--:|\n")
    least = sorted(files.items(), key=lambda item: (-item[1].missed - item[1].missed_branches, item[0]))
    out.writelines(f"| {name} | {figures.cells()} |\n" for name, figures in least[:LEAST])
    return out.getvalue()


def room_of(name: str) -> str:
    """`stores/sqlite/store.py` → `stores/sqlite`; `app.py` → the files at the top."""
    folders = name.split("/")[:-1]
    if not folders:
        return "top level"
    deep = folders[0] in ("contrib", "stores", "surfaces")
    return "/".join(folders[: 2 if deep else 1])


def total_of(report: Mapping[str, Any]) -> Figures:
    return Figures().add(report["totals"])


def commit() -> str:
    reported = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return reported.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
