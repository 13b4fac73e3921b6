"""One drain on each store by the code that PYTHONPATH names; jobs a second, as JSON. For bench.pairs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from bench.places import Place, durable_server, postgres_place, sqlite_place

JOBS = 20_000


def rate_of(place: Place) -> float:
    place.fill(2_000)
    place.drain(2_000)
    place.fill(JOBS)
    rate: float = place.drain(JOBS)["rate"]
    place.close()
    return rate


if __name__ == "__main__":
    with durable_server() as server, tempfile.TemporaryDirectory() as folder:
        rates = {
            "PostgreSQL": rate_of(postgres_place(server, "pair")),
            "SQLite": rate_of(sqlite_place(Path(folder), "pair")),
        }
    print(json.dumps(rates))
