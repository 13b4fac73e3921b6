"""An e-mail assistant: it labels new mail, writes drafts, and learns of changes from Gmail's history."""
