"""Pure domain logic: states, outcomes and decisions. No I/O, no clock, no randomness, no threads."""
