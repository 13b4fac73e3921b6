"""The vector index over the fragments of a task. The table is the truth; the index is made from it and
kept in memory."""

from __future__ import annotations

import json
import threading

import numpy as np
from usearch.index import Index

from . import database
from .text import DIMENSIONS, embed

CHUNK = 100
_making = threading.Lock()
_indexes: dict[str, TaskIndex] = {}


class TaskIndex:
    """An HNSW index by cosine, of one task. Threads share it."""

    def __init__(self) -> None:
        self._index = Index(ndim=DIMENSIONS, metric="cos", dtype="f32")
        self._rows: list[tuple[str, str, str, str]] = []  # fragment_id, domain, url, text
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def refresh(self, task_id: str) -> None:
        """Take in what any process has embedded since. Vectors are large: only those that are new are read."""
        with self._lock:
            embedded = database.read(
                "SELECT fragment_id FROM fragments WHERE task_id = ? AND embedding IS NOT NULL", (task_id,)
            )
            new = [fragment_id for (fragment_id,) in embedded if fragment_id not in self._known]
            for start in range(0, len(new), CHUNK):
                self._take_in(new[start : start + CHUNK])

    def _take_in(self, fragment_ids: list[str]) -> None:
        marks = ", ".join("?" * len(fragment_ids))
        for fragment_id, domain, url, text, embedding in database.read(
            f"SELECT fragment_id, domain, url, text, embedding FROM fragments WHERE fragment_id IN ({marks})",
            fragment_ids,
        ):
            self._known.add(fragment_id)
            self._index.add(len(self._rows), np.array(json.loads(embedding), dtype=np.float32))
            self._rows.append((fragment_id, domain, url, text))

    def nearest(self, text: str, k: int, not_from: str | None = None) -> list[dict[str, object]]:
        """Fragments that are most like the text; `not_from` leaves out a domain. The index knows nothing of domains:
        more are asked for than wanted, and those of `not_from` dropped."""
        vector = np.array(embed(text), dtype=np.float32)
        with self._lock:
            if not self._rows:
                return []
            matches = self._index.search(vector, min(len(self._rows), 8 * k))
            found = []
            for key, distance in zip(matches.keys, matches.distances, strict=True):
                fragment_id, domain, url, fragment = self._rows[int(key)]
                if domain != not_from:
                    near = round(1 - float(distance), 3)
                    found.append(
                        {"fragment_id": fragment_id, "url": url, "text": fragment, "similarity": near}
                    )
            return found[:k]


def index_of(task_id: str) -> TaskIndex:
    """With all that is embedded by now."""
    with _making:
        index = _indexes.setdefault(task_id, TaskIndex())
    index.refresh(task_id)
    return index
