"""Checks of input: each value is checked once."""
