"""Tool runs in Docker: a truthful record of each run, adoption after a crash, or cap and reject."""
