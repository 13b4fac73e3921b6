"""A process that enqueues in its own transaction and never commits: `python -m tests.faults.enlist_main URL SCHEMA`."""

from __future__ import annotations

import sqlite3
import sys
import threading
from typing import Any

from leasehold import Leasehold


def main(url: str, schema: str) -> None:
    app = Leasehold(url, schema=schema)

    @app.task(name="never-enqueued-before")
    def ship() -> None: ...

    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.execute("begin immediate")
    else:
        import psycopg

        connection = psycopg.connect(url)
    connection.execute("insert into orders values ('mine')")
    ship.using(tx=connection, group="g", unique="k", lane="l").enqueue()
    print("inserted", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
