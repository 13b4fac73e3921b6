"""Benchmarks: `make bench`, or `python -m bench plans --rows 1000000`."""
