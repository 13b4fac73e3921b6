"""cleanup, rework, manual_draft and agent_process: a test for each numbered line of the document, named by it."""

from __future__ import annotations

from typing import Any

import pytest

from examples.mail_assistant.conftest import Office
from examples.mail_assistant.demo import KINDS, Kind
from examples.mail_assistant.tasks import classify, cleanup, manual_draft, rework

DINNER, BILL = KINDS[0], KINDS[1]
CRISP = KINDS[7]
ROUTE = {"profile": "pharmacy", "route_rule": "pharmacy_support"}


def place(message: dict[str, Any]) -> dict[str, str]:
    return {"message_id": message["id"], "thread_id": message["threadId"]}


def drafted(office: Office) -> dict[str, str]:
    """A thread with the assistant's draft."""
    where = place(office.receive(DINNER))
    office.run(classify, **where)
    return where


def write_draft(office: Office, thread_id: str, text: str) -> str:
    """As the user would."""
    gmail = office.shared.gmail_of(office.shared.active_users()[0])
    return gmail.create_draft(thread_id, DINNER.sender, "Re: Dinner", text)


# --- cleanup --------------------------------------------------------------------------------------------------------


def test_cleanup_done_archives_the_thread(office: Office) -> None:
    where = drafted(office)
    office.world.put_label(where["message_id"], "Done")
    assert office.run(cleanup, action="done", **where).result(timeout=0) == "archived"
    message = office.world.call("GET", f"/messages/{where['message_id']}")
    assert "INBOX" not in message["labelIds"]
    assert office.world.labels_of(where["thread_id"]) == {"Done"}
    assert office.email(where["thread_id"])["status"] == "archived"
    before = office.snapshot()
    office.run(cleanup, action="done", **where)
    assert office.snapshot() == before
    assert office.events(where["thread_id"])[-1] == "archived"


def test_cleanup_check_sent_notices_that_the_draft_was_sent(office: Office) -> None:
    where = drafted(office)
    check = {"action": "check_sent", **where}
    assert office.run(cleanup, **check).result(timeout=0) == "the draft is still there"
    (draft_id,) = office.world.drafts_of(where["thread_id"])
    office.world.call("POST", "/drafts/send", json={"id": draft_id})
    assert office.run(cleanup, **check).result(timeout=0) == "sent"
    assert office.email(where["thread_id"])["status"] == "sent"
    assert office.world.labels_of(where["thread_id"]) == set()
    assert office.events(where["thread_id"])[-1] == "sent_detected"
    assert office.run(cleanup, **check).result(timeout=0) == "no draft is waiting"


def test_cleanup_check_sent_leaves_a_draft_that_was_thrown_away(office: Office) -> None:
    where = drafted(office)
    (draft_id,) = office.world.drafts_of(where["thread_id"])
    office.world.call("DELETE", f"/messages/{draft_id.removeprefix('draft_')}")
    said = office.run(cleanup, action="check_sent", **where).result(timeout=0)
    assert said == "the draft is gone and nothing was sent"
    assert office.email(where["thread_id"])["status"] == "drafted"


# --- rework ---------------------------------------------------------------------------------------------------------


def rework_with(office: Office, where: dict[str, str], wish: str) -> Any:
    """The user edits the draft, writes a wish above the marker, and sets the label."""
    for draft_id in office.world.drafts_of(where["thread_id"]):
        office.world.call("DELETE", f"/messages/{draft_id.removeprefix('draft_')}")
    write_draft(office, where["thread_id"], f"{wish}\n\n✂️\n\nthe old text")
    office.world.put_label(where["message_id"], "Rework")
    return office.run(rework, message_id=where["message_id"]).result(timeout=0)


def test_rework_1_the_message_leads_to_its_thread(office: Office) -> None:
    where = drafted(office)
    assert rework_with(office, where, "say no") == "reworked"
    assert office.email(where["thread_id"])["rework_count"] == 1
    assert office.run(rework, message_id="msg_0").result(timeout=0) == "the message is gone"


def test_rework_2_the_communication_style_is_used(office: Office) -> None:
    where = place(office.receive(KINDS[3]))
    office.run(classify, **where)
    rework_with(office, where, "shorter")
    (text,) = office.draft_texts(where["thread_id"])
    assert "in a formal tone" in text


def test_rework_3_the_draft_is_written_anew_by_the_instructions(office: Office) -> None:
    where = drafted(office)
    rework_with(office, where, "say no, politely")
    (text,) = office.draft_texts(where["thread_id"])
    assert "As instructed: say no, politely" in text
    assert "the old text" not in text
    assert office.world.labels_of(where["thread_id"]) == {"Outbox"}
    assert office.email(where["thread_id"])["last_rework_instruction"] == "say no, politely"
    assert office.events(where["thread_id"])[-1] == "draft_reworked"
    before = office.snapshot()
    assert office.run(rework, message_id=where["message_id"]).result(timeout=0) == "nothing to rework"
    assert office.snapshot() == before


def test_rework_3_the_fourth_time_is_left_to_the_user(office: Office) -> None:
    where = drafted(office)
    said = [rework_with(office, where, f"again {number}") for number in range(4)]
    assert said == ["reworked"] * 3 + ["limit reached"]
    assert office.email(where["thread_id"])["rework_count"] == 3
    assert office.world.labels_of(where["thread_id"]) == {"Action Required"}


def test_rework_counts_once_though_its_first_attempt_dies_after_its_effects(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, failures = drafted(office), iter([OSError("the disk is full")])

    def log_event(*_: object, **__: object) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure

    monkeypatch.setattr("examples.mail_assistant.lifecycle.log_event", log_event)
    assert rework_with(office, where, "say no") == "reworked"
    assert office.email(where["thread_id"])["rework_count"] == 1
    assert len(office.draft_texts(where["thread_id"])) == 1
    assert [job["attempts"] for job in office.jobs("rework")] == [2]
    assert office.llm_calls(where["thread_id"]).count("draft") == 2  # the first draft, and one rework


# --- manual_draft ---------------------------------------------------------------------------------------------------


def by_hand(office: Office, notes: str = "") -> tuple[dict[str, str], Any]:
    """The assistant thought that a bill needs no answer; the user labels it, perhaps with notes in a draft."""
    where = place(office.receive(Kind("a@b.example", "Bill", "the invoice", "Outbox")))
    office.run(classify, **where)
    if notes:
        write_draft(office, where["thread_id"], notes)
    office.world.put_label(where["message_id"], "Needs Response")
    return where, office.run(manual_draft, message_id=where["message_id"])


def test_manual_draft_1_the_message_leads_to_its_thread(office: Office) -> None:
    where, job = by_hand(office)
    assert job.result(timeout=0) == "drafted"
    assert len(office.world.drafts_of(where["thread_id"])) == 1


def test_manual_draft_2_a_drafted_thread_is_skipped(office: Office) -> None:
    where, _ = by_hand(office)
    office.world.put_label(where["message_id"], "Needs Response")
    before = office.snapshot()
    assert office.run(manual_draft, message_id=where["message_id"]).result(timeout=0) == "already drafted"
    assert office.snapshot() == before


def test_manual_draft_3_the_thread_is_fetched_and_answered(office: Office) -> None:
    where, _ = by_hand(office)
    (text,) = office.draft_texts(where["thread_id"])
    assert "Hello a," in text


def test_manual_draft_4_instructions_stand_above_the_marker(office: Office) -> None:
    where, _ = by_hand(office, "ask for two more weeks\n✂️\nold text below")
    (text,) = office.draft_texts(where["thread_id"])
    assert "As instructed: ask for two more weeks" in text
    assert "old text below" not in text


def test_manual_draft_5_the_record_says_needs_response(office: Office) -> None:
    where, _ = by_hand(office)
    assert office.email(where["thread_id"])["classification"] == "needs_response"
    unseen = place(office.receive(BILL))
    office.world.put_label(unseen["message_id"], "Needs Response")
    office.run(manual_draft, message_id=unseen["message_id"])
    assert office.email(unseen["thread_id"])["status"] == "drafted"


def test_manual_draft_6_context_and_draft_are_asked_for(office: Office) -> None:
    where, _ = by_hand(office)
    assert office.llm_calls(where["thread_id"]) == ["classify", "context", "draft"]


def test_manual_draft_7_notes_and_stale_drafts_are_trashed(office: Office) -> None:
    where, _ = by_hand(office, "only notes, without a marker")
    (text,) = office.draft_texts(where["thread_id"])
    assert "As instructed: only notes" in text


def test_manual_draft_8_a_new_draft_is_created(office: Office) -> None:
    where, _ = by_hand(office)
    assert office.world.drafts_of(where["thread_id"]) == [office.email(where["thread_id"])["draft_id"]]


def test_manual_draft_9_needs_response_becomes_outbox(office: Office) -> None:
    where, _ = by_hand(office)
    assert "Needs Response" not in office.world.labels_of(where["thread_id"])
    assert "Outbox" in office.world.labels_of(where["thread_id"])


def test_manual_draft_10_an_event_is_logged(office: Office) -> None:
    where, _ = by_hand(office)
    assert office.events(where["thread_id"]) == ["classified", "manual_draft_created"]
