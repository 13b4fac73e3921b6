"""What a task is, and a call of it before it is a row."""
