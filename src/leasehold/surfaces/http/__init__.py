"""The HTTP API: routes from the table of verbs, others by hand. No SQL, no policy; one table of problems."""
