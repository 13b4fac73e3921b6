"""Explains why a job is not running."""
