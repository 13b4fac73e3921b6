"""Leasehold: long background work that survives crashes, in your own database."""

__all__: list[str] = []
