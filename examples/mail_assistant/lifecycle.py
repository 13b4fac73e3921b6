"""The lifecycle manager: what happens to a thread after its draft. The document that describes it (spec 04) is not at
hand; README.md says what was decided."""

from __future__ import annotations

from examples.mail_assistant import labels
from examples.mail_assistant.app import Desk
from examples.mail_assistant.db import log_event, now, run
from examples.mail_assistant.drafting import (
    gather_context,
    generate,
    has_label,
    last_received,
    move_labels,
    notes_in,
    replace_draft,
)
from examples.mail_assistant.gmail import Mail

MAX_REWORKS = 3


def handle_done(desk: Desk, thread_id: str) -> str:
    """The user is done with a thread: it leaves the inbox, and only the Done label stays."""
    thread = [mail for mail in desk.gmail.thread(thread_id) if "DRAFT" not in mail.labels]
    if not any(desk.label(labels.DONE) in mail.labels for mail in thread):
        return "no longer labelled Done"
    ours = [desk.label(name) for name in labels.ALL if name != labels.DONE]
    desk.gmail.batch_modify([mail.id for mail in thread], add=[], remove=[*ours, "INBOX"])
    email = desk.email(thread_id)
    if email is None or email["status"] == "archived":
        return "nothing on record to archive"
    with desk.ctx.complete("archived") as tx:
        _set_status(desk, tx.connection, thread_id, "archived")
        log_event(tx.connection, desk.user.id, thread_id, "archived", desk.ctx.job_id)
    return "archived"


def handle_sent_detection(desk: Desk, thread_id: str) -> str:
    """Gmail deletes a draft when it is sent. If ours is gone and the thread ends with a sent message, the user has sent
    it; if nothing was sent, the user has thrown it away, and the thread stays as it is."""
    email = desk.email(thread_id)
    if email is None or email["status"] != "drafted":
        return "no draft is waiting"
    if any(draft.id == email["draft_id"] for draft in desk.gmail.drafts(thread_id)):
        return "the draft is still there"
    thread = desk.gmail.thread(thread_id)
    if not thread or "SENT" not in thread[-1].labels:
        return "the draft is gone and nothing was sent"
    move_labels(desk, thread_id, add=[], remove=[labels.OUTBOX])
    with desk.ctx.complete("sent") as tx:
        _set_status(desk, tx.connection, thread_id, "sent")
        log_event(tx.connection, desk.user.id, thread_id, "sent_detected", desk.ctx.job_id)
    return "sent"


def handle_rework(desk: Desk, mail: Mail) -> str:
    """Write the draft anew by the instructions above the marker; the third time is the last, then a human decides."""
    thread_id, email = mail.thread_id, desk.email(mail.thread_id)
    if email is None or not desk.ctx.step("asked for", has_label, desk, mail, labels.REWORK):
        return "nothing to rework"
    if email["rework_count"] >= MAX_REWORKS:
        move_labels(desk, thread_id, add=[labels.ACTION_REQUIRED], remove=[labels.REWORK, labels.OUTBOX])
        with desk.ctx.complete("limit reached") as tx:
            _set_status(desk, tx.connection, thread_id, "skipped")
            log_event(tx.connection, desk.user.id, thread_id, "rework_limit_reached", desk.ctx.job_id)
        return "limit reached"
    wish = desk.ctx.step("instructions", notes_in, desk, thread_id)
    thread = desk.gmail.thread(thread_id)
    answered = last_received(desk, thread) or mail
    context = desk.ctx.step("context", gather_context, desk, answered)
    body = desk.ctx.step("generate", generate, desk, answered, thread, context, wish)
    draft_id = desk.ctx.step("gmail draft", replace_draft, desk, answered, body)
    move_labels(desk, thread_id, add=[labels.OUTBOX], remove=[labels.REWORK, labels.NEEDS_RESPONSE])
    with desk.ctx.complete("reworked") as tx:
        run(
            tx.connection,
            "UPDATE emails SET status = 'drafted', draft_id = ?, rework_count = rework_count + 1,"
            " last_rework_instruction = ?, updated_at = ? WHERE user_id = ? AND gmail_thread_id = ?",
            *(draft_id, wish, now(), desk.user.id, thread_id),
        )
        log_event(tx.connection, desk.user.id, thread_id, "draft_reworked", desk.ctx.job_id, wish=wish)
    return "reworked"


def _set_status(desk: Desk, connection: object, thread_id: str, status: str) -> None:
    statement = "UPDATE emails SET status = ?, updated_at = ? WHERE user_id = ? AND gmail_thread_id = ?"
    run(connection, statement, status, now(), desk.user.id, thread_id)
