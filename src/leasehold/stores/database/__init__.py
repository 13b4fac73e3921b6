"""The layer below the verbs: sessions, statements, rows, migrations, wake-ups."""
