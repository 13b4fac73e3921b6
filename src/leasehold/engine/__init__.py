"""The running system: it knows the store's contract, never a dialect."""
