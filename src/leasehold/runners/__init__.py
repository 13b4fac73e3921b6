"""Where a job's code runs, if not in the worker itself."""
