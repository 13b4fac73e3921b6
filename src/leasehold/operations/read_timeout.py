"""Limits how long the reads of one request may take; for surfaces."""

from leasehold.stores.database.read_timeout import reads_within

__all__ = ["reads_within"]
