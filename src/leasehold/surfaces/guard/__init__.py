"""Who may ask, from where, and for what: the same for every surface that listens."""
