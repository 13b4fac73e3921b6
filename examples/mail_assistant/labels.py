"""The labels that the assistant keeps in a mailbox."""

NEEDS_RESPONSE = "Needs Response"
OUTBOX = "Outbox"
REWORK = "Rework"
DONE = "Done"
ACTION_REQUIRED = "Action Required"

BY_CLASSIFICATION = {
    "needs_response": NEEDS_RESPONSE,
    "action_required": ACTION_REQUIRED,
    "payment_request": "Payment Request",
    "fyi": "FYI",
    "waiting": "Waiting",
}

ALL = (*BY_CLASSIFICATION.values(), OUTBOX, REWORK, DONE)
