"""Handles in the user's hands."""
