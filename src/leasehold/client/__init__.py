"""The handles that users hold: jobs, groups, queues and the rest."""
