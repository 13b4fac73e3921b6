"""A long run in pieces: what is done is kept in build/soak, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import platform
import secrets
import sqlite3
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import hypothesis

ROOT = Path(__file__).parents[2]


@dataclass
class Progress:
    """Seeds are used one after the other, from a random one on."""

    seed: int
    seeds: int = 0
    seconds: float = 0.0
    tally: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> Progress:
        if path.exists():
            return Progress(**json.loads(path.read_text()))
        return Progress(secrets.randbelow(2**32))

    @property
    def sequences(self) -> int:
        return self.tally.get("sequences", 0)

    @property
    def next_seed(self) -> int:
        return self.seed + self.seeds

    def add(self, tally: Counter[str], seeds: int, seconds: float) -> None:
        self.seeds += seeds
        self.seconds += seconds
        self.tally = dict(Counter(self.tally) + tally)

    def save(self, path: Path) -> None:
        """In one move: a run that is killed leaves the old file or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(path)


def report(progress: Progress, verbs: tuple[str, ...], postgres: str) -> str:
    """The measured figures as a page of docs/measured."""
    minutes = progress.seconds / 60
    day = datetime.now(UTC).date().isoformat()
    lines = [
        "# The stores against the model",
        "",
        "Written by `make soak` (tests/stores/test_stateful.py): random verbs on the model, SQLite and PostgreSQL;",
        "answers and rows were compared after every step, and no difference was found.",
        "",
        "| what | figure |",
        "|---|--:|",
        f"| finished on | {day} |",
        f"| sequences | {progress.sequences:,} |",
        f"| steps | {progress.tally['steps']:,} |",
        f"| calls | {sum(progress.tally[verb] for verb in verbs):,} |",
        f"| minutes | {minutes:.1f} |",
        f"| seeds | {progress.seed} to {progress.next_seed - 1} |",
        f"| Python, Hypothesis | {platform.python_version()}, {hypothesis.__version__} |",
        f"| SQLite, PostgreSQL | {sqlite3.sqlite_version}, {postgres} |",
        "",
        "| verb | calls | how they ended |",
        "|---|--:|---|",
    ]
    for verb in verbs:
        how = Counter(
            {k.split(": ", 1)[1]: n for k, n in progress.tally.items() if k.startswith(f"{verb}: ")}
        )
        reported = " · ".join(f"{word} {count:,}" for word, count in how.most_common())
        lines.append(f"| {verb} | {progress.tally[verb]:,} | {reported} |")
    lines += ["", "| settled as | flag → state |", "|---|---|"]
    endings: dict[str, list[str]] = {}
    for key, count in sorted(progress.tally.items()):
        if key.startswith("settle ") and ": " in key:
            outcome, how = key.removeprefix("settle ").split(": ", 1)
            endings.setdefault(outcome, []).append(
                f"{how.replace('->', '→').replace('None', 'no flag')} {count:,}"
            )
    lines += [f"| {outcome} | {' · '.join(how)} |" for outcome, how in endings.items()]
    return "\n".join(lines) + "\n"


class Stopwatch:
    def __enter__(self) -> Stopwatch:
        self._start = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._start
