"""Input, checked once."""
