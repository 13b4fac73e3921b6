"""What the user does in Gmail reaches the assistant through the history, and leads to each of the seven job types."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from examples.mail_assistant.db import JOB_TYPES
from examples.mail_assistant.demo import KINDS
from examples.mail_assistant.outside import Outside, outside
from examples.mail_assistant.processes import wait_for

pytestmark = pytest.mark.slow
DINNER, BILL, REVIEW, ORDER = KINDS[0], KINDS[1], KINDS[6], KINDS[7]


def test_threads_are_drafted_reworked_sent_done_and_answered_by_an_agent(url: str) -> None:
    with outside(url) as place:
        place.processes.start_assistant()
        wait_for(lambda: place.db.row("SELECT 1 AS x FROM sync_state"), "a first sync")
        messages = {kind: place.world.receive(kind) for kind in (DINNER, BILL, REVIEW, ORDER)}
        dinner, bill, review, order = (messages[kind]["threadId"] for kind in messages)
        threads = {message["threadId"]: kind for kind, message in messages.items()}
        wait_for(lambda: not place.world.wrong(threads) and place.at_rest(), "labels and drafts")

        write_draft(place, dinner, "say no\n\n✂️\n\nthe old text")
        place.world.put_label(messages[DINNER]["id"], "Rework")
        wait_for(ended(place, dinner, "draft_reworked"), "the draft is reworked")
        assert "As instructed: say no" in draft_of(place, dinner)
        (draft_id,) = place.world.drafts_of(dinner)
        place.world.call("POST", "/drafts/send", json={"id": draft_id})

        write_draft(place, bill, "ask for two more weeks")
        place.world.put_label(messages[BILL]["id"], "Needs Response")
        wait_for(ended(place, bill, "manual_draft_created"), "a draft by hand")
        assert "As instructed: ask for two more weeks" in draft_of(place, bill)

        place.world.put_label(messages[REVIEW]["id"], "Done")
        wait_for(ended(place, review, "archived"), "the thread is archived")
        wait_for(ended(place, dinner, "sent_detected"), "the sent draft is noticed")
        jobs = place.jobs_at_rest()

        assert place.events() == {
            dinner: ["classified", "draft_created", "draft_reworked", "sent_detected"],
            bill: ["classified", "manual_draft_created"],
            review: ["classified", "archived"],
            order: ["agent_processed"],
        }
        assert {job["job_type"] for job in jobs} == set(JOB_TYPES)
        assert {job["status"] for job in jobs} == {"completed"}
        rows = place.db.rows("SELECT gmail_thread_id, status, rework_count FROM emails")
        statuses = {row["gmail_thread_id"]: (row["status"], row["rework_count"]) for row in rows}
        assert statuses == {dinner: ("sent", 1), bill: ("drafted", 0), review: ("archived", 0)}
        assert place.world.labels_of(review) == {"Done"}
        assert place.db.rows("SELECT DISTINCT max_attempts FROM jobs") == [{"max_attempts": 3}]


def ended(place: Outside, thread_id: str, event: str) -> Callable[[], bool]:
    return lambda: place.events().get(thread_id, [""])[-1] == event


def write_draft(place: Outside, thread_id: str, text: str) -> None:
    """As the user would."""
    gmail = place.shared.gmail_of(place.shared.active_users()[0])
    gmail.create_draft(thread_id, "someone@example.org", "Re: this", text)


def draft_of(place: Outside, thread_id: str) -> str:
    """The one draft of a thread."""
    (draft,) = place.shared.gmail_of(place.shared.active_users()[0]).drafts(thread_id)
    return draft.mail.body
