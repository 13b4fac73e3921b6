"""One drain of the code that PYTHONPATH names, on a server of its own; jobs a second, as JSON. For bench.pairs."""

from __future__ import annotations

import json

from bench.places import durable_server, postgres_place

JOBS = 20_000

if __name__ == "__main__":
    with durable_server() as server:
        place = postgres_place(server, "pair")
        place.fill(2_000)
        place.drain(2_000)
        place.fill(JOBS)
        print(json.dumps({"rate": place.drain(JOBS)["rate"]}))
        place.close()
