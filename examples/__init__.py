"""Whole applications on Leasehold. They use its public names only."""
