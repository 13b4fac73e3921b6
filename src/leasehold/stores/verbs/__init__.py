"""One file a stage of a job's life; its statements stand in the .sql file of the same name."""
