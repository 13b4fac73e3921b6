"""Stores that keep jobs: one contract, with verbs written once in Python and statements twice in SQL."""
