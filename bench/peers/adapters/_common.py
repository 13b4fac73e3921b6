"""Shared by the adapters: where the stores are, and a blocking SQL helper for setup()."""
import importlib.metadata
import os

PG = os.environ.get("BENCH_PG", "")
SQLITE = os.environ.get("BENCH_SQLITE", "")


def version(*packages):
    return ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)
