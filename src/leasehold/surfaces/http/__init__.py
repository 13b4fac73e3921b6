"""The HTTP API: parse, call `operations/operations.py`, answer. No SQL, no policy; one table of problems."""
