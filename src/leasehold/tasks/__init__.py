"""Tasks, their settings, and calls before they are stored."""
