"""Instants as PostgreSQL keeps them: some of them (infinity, the year 10000) are none in Python."""

from __future__ import annotations

from datetime import datetime

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from leasehold.domain.checks.instants import EARLIEST, LATEST

_READ = psycopg.adapters.get_loader(psycopg.adapters.types["timestamptz"].oid, Format.TEXT)


class InstantLoader(Loader):
    """One unreadable row must not break a whole list: such a time is shown as the first or the last
    that there is."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        assert _READ is not None
        self._read = _READ(oid, context).load

    def load(self, data: Buffer) -> datetime:
        try:
            found: datetime = self._read(data)
            return min(max(found, EARLIEST), LATEST)
        except (psycopg.DataError, OverflowError):
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST
