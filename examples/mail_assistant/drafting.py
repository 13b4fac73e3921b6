"""Writing drafts: what is around a thread, the model's text, and Gmail's drafts.

An AI draft begins with the ✂️ marker. What the user writes above it is an instruction, for the assistant and never for
the recipient.
"""

from __future__ import annotations

import json
import logging

from examples.mail_assistant.app import Desk
from examples.mail_assistant.gmail import Draft, Mail

MARKER = "✂️"
log = logging.getLogger(__name__)


def instructions_in(text: str) -> str:
    """What stands above the marker; all of it, if there is none."""
    return text.partition(MARKER)[0].strip()


def is_ours(draft: Draft) -> bool:
    return MARKER in draft.mail.body


def notes_in(desk: Desk, thread_id: str) -> str:
    """The user's instructions, from the newest draft of the thread that has any."""
    found = [instructions_in(draft.mail.body) for draft in desk.gmail.drafts(thread_id)]
    return next((text for text in reversed(found) if text), "")


def has_label(desk: Desk, mail: Mail, name: str) -> bool:
    """Whether a label that asked for a job was still there when the job began. A step of its own: the job takes the
    label off, and a second attempt must not take that for the user's hand."""
    return desk.label(name) in mail.labels


def last_received(desk: Desk, thread: list[Mail]) -> Mail | None:
    """The message that a reply answers."""
    received = [mail for mail in thread if not {"DRAFT", "SENT"} & set(mail.labels)]
    return received[-1] if received else None


def gather_context(desk: Desk, mail: Mail) -> str:
    """Related mail, found by words that the model names. Fail-safe: a draft without context is better than none."""
    try:
        form = f"From: {mail.sender}\nSubject: {mail.subject}\n\n{mail.body}"
        messages = [
            {"role": "system", "content": "Name up to three search words as a JSON list."},
            {"role": "user", "content": form},
        ]
        words = json.loads(desk.llm.complete("context", mail.thread_id, messages).text)
        found = {item["id"] for word in words for item in desk.gmail.search(f"from:{mail.sender} {word}", 3)}
        related = [desk.gmail.message(message_id) for message_id in sorted(found - {mail.id})][:3]
        return "\n".join(other.subject for other in related if other and other.thread_id != mail.thread_id)
    except Exception:
        log.warning("no context for thread %s", mail.thread_id, exc_info=True)
        return ""


def style_for(desk: Desk, sender: str) -> str:
    contacts, styles = desk.user.settings["contacts"], desk.user.settings["communication_styles"]
    return contacts.get(sender) or styles.get("default", "")


def generate(desk: Desk, mail: Mail, thread: list[Mail], context: str, instructions: str = "") -> str:
    form = [f"From: {mail.sender}", f"Subject: {mail.subject}", f"Style: {style_for(desk, mail.sender)}"]
    if instructions:
        form.append(f"Instructions: {' '.join(instructions.split())}")
    earlier = "\n---\n".join(other.body for other in thread if "DRAFT" not in other.labels)
    text = "\n".join(form) + f"\n\nThread:\n{earlier}\n\nRelated subjects:\n{context}"
    messages = [{"role": "system", "content": "Write a reply."}, {"role": "user", "content": text}]
    return desk.llm.complete("draft", mail.thread_id, messages).text


def trash_drafts(desk: Desk, thread_id: str, *, notes: bool = False) -> int:
    """The assistant's drafts of a thread go to the bin; with `notes` also those that the user has written."""
    found = [draft for draft in desk.gmail.drafts(thread_id) if notes or is_ours(draft)]
    for draft in found:
        desk.gmail.trash(draft.mail.id)
    return len(found)


def replace_draft(desk: Desk, mail: Mail, body: str, notes: bool = False) -> str:
    """Trash stale drafts and create the new one; its id. Both in one step: if the process dies after Gmail has created
    the draft and before the step is stored, the repeat finds that draft and trashes it first."""
    trash_drafts(desk, mail.thread_id, notes=notes)
    subject = mail.subject if mail.subject.startswith("Re: ") else f"Re: {mail.subject}"
    return desk.gmail.create_draft(mail.thread_id, mail.sender, subject, f"{MARKER}\n\n{body}")


def move_labels(desk: Desk, thread_id: str, *, add: list[str], remove: list[str]) -> None:
    """On all messages of the thread in one batch."""
    ids = [mail.id for mail in desk.gmail.thread(thread_id) if "DRAFT" not in mail.labels]
    add_ids, remove_ids = [desk.label(name) for name in add], [desk.label(name) for name in remove]
    if ids:
        desk.gmail.batch_modify(ids, add=add_ids, remove=remove_ids)
