"""The pure heart: states, outcomes and decisions. No I/O, no clock, no randomness, no threads."""
