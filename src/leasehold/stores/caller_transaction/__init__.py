"""Statements over a connection that is the user's, inside a transaction that is the user's to end."""
