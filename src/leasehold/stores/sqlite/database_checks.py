"""What can be wrong with a SQLite file and the disk it lies on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from leasehold.domain.records import Finding, Verdict
from leasehold.stores.sqlite.database import SqliteDatabase

_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "glusterfs", "afs", "fuse.sshfs", "lustre")
_SCARCE, _LOW = 64 * 2**20, 512 * 2**20
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def examine(database: SqliteDatabase) -> Iterator[Finding]:
    yield Finding("database", "ok", f"SQLite {sqlite3.sqlite_version}")
    mode = str(database.ask("PRAGMA journal_mode"))
    synchronous = _SYNCHRONOUS[int(database.ask("PRAGMA synchronous"))]
    yield (
        Finding("journal", "ok", "write-ahead log")
        if mode == "wal"
        else Finding(
            "journal", "bad", f"journal mode is {mode}", "put the file on a local disk: WAL needs one"
        )
    )
    yield Finding("synchronous", "ok" if synchronous in ("FULL", "EXTRA") else "bad", synchronous)
    path = Path(database.path).absolute()
    yield _filesystem(path)
    yield _space(path)


def _filesystem(path: Path) -> Finding:
    kind = filesystem_of(path, _mounts())
    if kind is None:
        return Finding("file system", "ok", "unknown")
    if kind.startswith(_NETWORK):
        return Finding(
            "file system",
            "bad",
            f"{path} is on a network file system ({kind})",
            "locks and shared memory do not work there: use a local disk, or PostgreSQL",
        )
    return Finding("file system", "ok", kind)


def filesystem_of(path: Path, mounts: str) -> str | None:
    """The type of the mount that the path lies on, as /proc/mounts shows it."""
    found: dict[Path, str] = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split(" ")
        found[Path(place.replace("\\040", " "))] = kind
    return next((found[parent] for parent in (path, *path.parents) if parent in found), None)


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    verdict: Verdict = "bad" if free < _SCARCE else "warn" if free < _LOW else "ok"
    remedy = "" if verdict == "ok" else "make room: a full disk stops every write"
    return Finding("free disk", verdict, f"{free / 2**20:,.0f} MB", remedy)
