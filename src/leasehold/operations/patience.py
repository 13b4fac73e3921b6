"""For surfaces: how long the reads of one request may take."""

from leasehold.stores.contract.patience import reads_within

__all__ = ["reads_within"]
