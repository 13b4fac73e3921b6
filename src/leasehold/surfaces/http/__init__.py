"""The HTTP API: most routes come from the table of verbs, the others are written by hand. No SQL, no policy."""
