"""One attempt, from grant to outcome, and what its handler may call."""
