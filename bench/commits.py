"""How many transactions have written into a database: asked of the database, whoever made them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

WAL_HEADER, FRAME_HEADER = 32, 24


def counter(url: str) -> Callable[[], int]:
    if url.startswith("sqlite:///"):
        wal = Path(url.removeprefix("sqlite:///") + "-wal")
        return lambda: sqlite_commits(wal)
    return lambda: postgres_writes(url)


def sqlite_commits(wal: Path) -> int:
    """The commits that stand in the write-ahead log. It begins anew after a checkpoint, which ten thousand pages are
    far from."""
    data = wal.read_bytes() if wal.exists() else b""
    if len(data) < WAL_HEADER:
        return 0
    page = int.from_bytes(data[8:12], "big")
    salts = data[16:24]
    commits = 0
    for start in range(WAL_HEADER, len(data) - FRAME_HEADER - page + 1, FRAME_HEADER + page):
        frame = data[start : start + FRAME_HEADER]
        if frame[8:16] != salts:
            break  # left over from before the log began anew
        commits += (
            int.from_bytes(frame[4:8], "big") > 0
        )  # the size of the database, only in the last frame of a commit
    return commits


def postgres_writes(url: str) -> int:
    """The next transaction number: only transactions that write are given one."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
        assert row is not None
        return int(row[0])
