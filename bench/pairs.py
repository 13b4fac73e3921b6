"""What a change costs plain jobs: enqueued and drained by a commit (`--commit`) and by an earlier one (`--against`), in
turns.

Figures go to docs/measured/pairs.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from rich.progress import track

from bench.places import ROOT

PAIRS = 8
BAR = 0.97
REPORT = ROOT / "docs" / "measured" / "pairs.md"


def run(commit: str, against: str) -> None:
    now, before = (_git("rev-parse", "--short", name) for name in (commit, against))
    with tempfile.TemporaryDirectory() as folder:
        trees = {name: Path(folder, name) for name in (now, before)}
        try:
            for name, tree in trees.items():
                _git("worktree", "add", "--detach", "--quiet", str(tree), name)
            pairs = []
            for number in track(range(PAIRS), "pairs", transient=True):
                # Whoever is second meets a disk that is still busy with the first: they change places.
                order = (now, before) if number % 2 else (before, now)
                rates = {name: _drain(trees[name]) for name in order}
                pairs.append((rates[now], rates[before]))
        finally:
            for tree in trees.values():
                _git("worktree", "remove", "--force", str(tree))
    lines = [
        "# This code against an earlier commit, measured",
        "",
        f"`python -m bench pairs --commit {now} --against {before}` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC:",
        "40,000 plain async jobs drained on each store, 2,000 enqueued one at a time and 40,000 in bulk, in turns.",
        "",
        "| pair | what | with it, jobs/s | before, jobs/s | ratio |",
        "|--:|---|--:|--:|--:|",
    ]
    for store in pairs[0][0]:
        both = [(one[store], other[store]) for one, other in pairs]
        lines += [
            f"| {n} | {store} | {one:,.0f} | {other:,.0f} | {one / other:.2f} |"
            for n, (one, other) in enumerate(both, start=1)
        ]
        median = statistics.median(one / other for one, other in both)
        verdict = "met" if median >= BAR else "missed"
        lines.append(f"| median | {store} | | | **{median:.2f}** (bar: ≥ {BAR}, {verdict}) |")
    print("\n".join(lines))
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _drain(tree: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    script = str(ROOT / "bench" / "one_drain.py")
    done = subprocess.run(
        [sys.executable, script], env=environment, cwd=tree, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return rates


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
