"""The roles of a worker process."""
