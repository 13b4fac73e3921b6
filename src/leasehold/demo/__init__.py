"""`leasehold demo`: sample work on a temporary database, in real processes; nothing stays behind."""
