"""draft: a test for each numbered line of the document, named by it."""

from __future__ import annotations

import httpx2
import pytest

from examples.mail_assistant.conftest import Office, place_of
from examples.mail_assistant.demo import KINDS
from examples.mail_assistant.tasks import classify, draft

DINNER, BOSS = KINDS[0], KINDS[3]


def test_draft_1_only_a_pending_email_is_drafted(office: Office) -> None:
    place = place_of(office)
    assert office.run(draft, **place).result(timeout=0) == "not pending"
    office.run(classify, **place)
    before = office.snapshot()
    assert office.run(draft, **place).result(timeout=0) == "not pending"
    assert office.snapshot() == before


def test_draft_2_the_whole_thread_is_read(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(office)
    place_of(office, BOSS, thread_id=place["thread_id"])
    office.run(classify, **place)
    (text,) = office.draft_texts(place["thread_id"])
    assert BOSS.subject in text  # the newest message is answered
    assert "formal" in text


def test_draft_3_context_is_gathered_and_its_failure_is_no_failure(office: Office) -> None:
    place = place_of(office)
    classify.enqueue(user_id="1", **place)
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr("examples.mail_assistant.gmail.Gmail.search", _down)
        office.box.drain()
    assert office.email(place["thread_id"])["status"] == "drafted"
    assert [job["attempts"] for job in office.jobs("draft")] == [1]


def _down(*_: object) -> None:
    raise httpx2.ConnectError("the search is down")


def test_draft_4_the_model_writes_it_and_both_calls_are_logged(office: Office) -> None:
    place = place_of(office)
    office.run(classify, **place)
    assert office.llm_calls(place["thread_id"]) == ["classify", "context", "draft"]
    (text,) = office.draft_texts(place["thread_id"])
    assert "thank you for your message" in text


def test_draft_5_a_stale_draft_of_an_earlier_attempt_is_trashed(office: Office) -> None:
    place = place_of(office)
    stale = office.shared.gmail_of(office.shared.active_users()[0])
    stale.create_draft(place["thread_id"], DINNER.sender, "Re: Dinner", "✂️\n\nfrom an attempt that died")
    mine = stale.create_draft(place["thread_id"], DINNER.sender, "Re: Dinner", "what I write myself")
    office.run(classify, **place)
    texts = office.draft_texts(place["thread_id"])
    assert len(texts) == 2
    assert mine in office.world.drafts_of(place["thread_id"])
    assert not any("an attempt that died" in text for text in texts)


def test_draft_6_a_draft_is_created(office: Office) -> None:
    place = place_of(office)
    office.run(classify, **place)
    (draft_id,) = office.world.drafts_of(place["thread_id"])
    assert office.email(place["thread_id"])["draft_id"] == draft_id


def test_draft_7_labels_move_on_all_messages_of_the_thread(office: Office) -> None:
    place = place_of(office)
    second = place_of(office, thread_id=place["thread_id"])
    office.run(classify, **place)
    outbox = office.world.label_id("Outbox")
    for message_id in (place["message_id"], second["message_id"]):
        assert outbox in office.world.call("GET", f"/messages/{message_id}")["labelIds"]
    assert office.world.labels_of(place["thread_id"]) == {"Outbox"}


def test_draft_8_the_record_says_drafted(office: Office) -> None:
    place = place_of(office)
    office.run(classify, **place)
    assert office.email(place["thread_id"])["status"] == "drafted"


def test_draft_9_a_draft_created_event_is_logged(office: Office) -> None:
    place = place_of(office)
    office.run(classify, **place)
    assert office.events(place["thread_id"]) == ["classified", "draft_created"]
