"""`python -m bench [name …] [--rows N]`: all benchmarks, or the named ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bench import (
    control,
    dashboard,
    executions,
    flags,
    idle,
    lists,
    pairs,
    plans,
    retention,
    speed,
    steps,
    watchers,
)

BENCHMARKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "control": lambda options: control.run(options.rows, options.parts),
    "dashboard": lambda options: dashboard.run(options.rows),
    "executions": lambda _: executions.run(),
    "flags": lambda _: flags.run(),
    "idle": lambda _: idle.run(),
    "lists": lambda options: lists.run(options.rows),
    "plans": lambda options: plans.run(options.rows),
    "retention": lambda _: retention.run(),
    "speed": lambda options: speed.run(options.rows, options.parts),
    "steps": lambda _: steps.run(),
    "watchers": lambda _: watchers.run(),
    "pairs": lambda options: pairs.run(options.commit, options.against),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run benchmarks.")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"of: {', '.join(BENCHMARKS)}; default: all but pairs"
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="of each background (default: %(default)s)"
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        help="of speed: drains, enqueue, growth, sqlite, latency, sleepers; of control: drains, explain; default: all",
    )
    parser.add_argument(
        "--against", default="HEAD~1", help="of pairs: the earlier commit (default: %(default)s)"
    )
    parser.add_argument(
        "--commit", default="HEAD", help="of pairs: the commit with the change (default: %(default)s)"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    for name in options.names or [name for name in BENCHMARKS if name != "pairs"]:
        BENCHMARKS[name](options)


if __name__ == "__main__":
    main()
