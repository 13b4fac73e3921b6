"""`python -m examples [name …]`: every application end to end, each in a process of its own, with a line about each."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(path.parent.name for path in HERE.glob("*/show.py"))
AT_ONCE = 2
"""They wait most of the time: for a lease to run out, or for a process to start."""


def show(name: str) -> tuple[str, str]:
    """The line about an application, and what it said besides if it failed."""
    began = time.monotonic()
    command = [sys.executable, "-m", f"examples.{name}.show"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent)
    last = (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
    verdict = "ok    " if done.returncode == 0 else "FAILED"
    line = f"{verdict} {name:15} {time.monotonic() - began:5.1f} s  {last}"
    return line, "" if done.returncode == 0 else done.stderr[-3000:] or last


def main() -> int:
    wanted = sys.argv[1:] or NAMES
    if unknown := [name for name in wanted if name not in NAMES]:
        print(f"no application is called {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    failed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line, problem in pool.map(show, wanted):
            print(line, flush=True)
            if problem:
                failed += 1
                print(problem, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
