"""What plain jobs cost the code that PYTHONPATH names: enqueue, bulk enqueue and drain on each store, jobs a second, as
JSON. For bench.pairs."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.places import Place, durable_server, postgres_place, sqlite_place
from leasehold import Leasehold

JOBS = 40_000
SINGLE = 2_000
BULK = 40_000


def rates_of(place: Place) -> Iterator[tuple[str, float]]:
    place.fill(2_000)
    place.drain(2_000)
    place.fill(JOBS)
    yield "drain", place.drain(JOBS)["rate"]
    with Leasehold(place.url) as app:
        task = app.task(name="single")(_nothing)
        task.enqueue(0)
        began = time.perf_counter()
        for n in range(SINGLE):
            task.enqueue(n)
        yield "enqueue one at a time", SINGLE / (time.perf_counter() - began)
        began = time.perf_counter()
        task.enqueue_many({"n": n} for n in range(BULK))
        yield "bulk enqueue", BULK / (time.perf_counter() - began)
    place.close()


async def _nothing(n: int) -> None: ...


if __name__ == "__main__":
    with durable_server() as server, tempfile.TemporaryDirectory() as folder:
        places = {
            "PostgreSQL": postgres_place(server, "pair"),
            "SQLite": sqlite_place(Path(folder), "pair"),
        }
        rates = {
            f"{store}, {what}": rate for store, place in places.items() for what, rate in rates_of(place)
        }
    print(json.dumps(rates))
