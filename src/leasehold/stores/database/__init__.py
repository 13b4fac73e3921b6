"""What the verbs stand on: sessions, statements, rows, migrations, wake-ups."""
