"""An empty store beside the user's own, gone when it is no longer needed."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leasehold.stores.open import open_store


@contextmanager
def scratch_place(url: str, pooler: bool = False) -> Iterator[tuple[str, str]]:
    """A URL and a schema: a schema of its own in the same database, or a file in the same folder, so that it stands on
    the same server and the same disk. It is removed when the block ends."""
    name = f"leasehold_scratch_{secrets.token_hex(4)}"
    if url.startswith("sqlite"):
        path = Path(url.partition("://")[2].removeprefix("/"))
        file = path.with_name(f"{name}.db")
        try:
            yield f"sqlite:///{file}", name
        finally:
            for part in ("", "-wal", "-shm"):
                Path(f"{file}{part}").unlink(missing_ok=True)
            shutil.rmtree(f"{file}.results", ignore_errors=True)
        return
    try:
        yield url, name
    finally:
        store = open_store(url, schema=name, pooler=pooler)
        store.drop()
        store.close()
