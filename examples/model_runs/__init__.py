"""Model runs: RQ brings the id of a run, the lease in the database decides who runs it."""
