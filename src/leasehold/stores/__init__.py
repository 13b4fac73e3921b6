"""Where jobs are kept: one contract, verbs written once in Python, statements twice in SQL."""
