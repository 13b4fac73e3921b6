"""Where jobs are kept: one set of promises, verbs written once in Python, statements twice in SQL."""
