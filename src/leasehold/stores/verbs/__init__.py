"""Store verbs, one file per stage of a job's life; the .sql file of that name has its statements."""
