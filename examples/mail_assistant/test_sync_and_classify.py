"""sync and classify: a test for each numbered line of the document, named by it."""

from __future__ import annotations

import pytest

from examples.mail_assistant import llm
from examples.mail_assistant.conftest import Office, place_of
from examples.mail_assistant.demo import KINDS, Kind
from examples.mail_assistant.tasks import classify, sync
from leasehold import State

DINNER, BILL, _, _, SPAM, CONTRACT, *_ = KINDS
FIRST = Kind("x@y.example", "Old", "nothing new", "FYI")


def synced(office: Office) -> None:
    """The first sync is over: from here on the history tells."""
    office.run(sync)


# --- sync -----------------------------------------------------------------------------------------------------------


def test_sync_1_the_state_of_the_user_is_read_and_no_other(office: Office) -> None:
    synced(office)
    before = office.db.row("SELECT * FROM sync_state WHERE user_id = '1'")
    office.db.write("INSERT INTO sync_state VALUES ('2', '1', 'never')")
    place_of(office)
    assert office.run(sync).result(timeout=0)["full"] is False
    assert office.db.row("SELECT * FROM sync_state WHERE user_id = '1'") != before
    assert office.db.row("SELECT last_history_id FROM sync_state WHERE user_id = '2'") == {
        "last_history_id": "1"
    }


def test_sync_2_without_a_state_the_inbox_is_searched(office: Office) -> None:
    new, old = place_of(office), place_of(office, age_days=30)
    assert office.run(sync).result(timeout=0)["full"] is True
    assert [job["payload"].count(new["thread_id"]) for job in office.jobs("classify")] == [1]
    assert not office.db.rows("SELECT 1 AS x FROM emails WHERE gmail_thread_id = ?", old["thread_id"])


def test_sync_3_history_is_read_since_the_last_id(office: Office) -> None:
    first = place_of(office, FIRST)
    synced(office)
    second = place_of(office)
    result = office.run(sync).result(timeout=0)
    assert (result["full"], result["jobs"]) == (False, 1)
    places = [job["payload"] for job in office.jobs("classify")]
    assert [first["thread_id"] in places[0], second["thread_id"] in places[1]] == [True, True]


def test_sync_3_a_history_that_is_gone_leads_to_a_full_sync(office: Office) -> None:
    synced(office)
    place = place_of(office)
    office.world.control("/expire-history", {"address": office.world.address})
    assert office.run(sync).result(timeout=0)["full"] is True
    assert office.world.labels_of(place["thread_id"]) == {"Outbox"}
    assert office.run(sync).result(timeout=0)["full"] is False  # the new id is good


def test_sync_4_each_record_makes_its_job(office: Office) -> None:
    old = place_of(office, FIRST)
    drafted = place_of(office)
    synced(office)
    place_of(office, BILL), place_of(office, KINDS[7])
    office.world.put_label(old["message_id"], "Needs Response")
    office.world.put_label(drafted["message_id"], "Rework")
    done = place_of(office, BILL)
    office.world.put_label(done["message_id"], "Done")
    office.world.call("DELETE", f"/messages/{place_of(office, FIRST)['message_id']}")
    office.run(sync)
    made = {kind: len(office.jobs(kind)) for kind in ("classify", "agent_process", "rework", "manual_draft")}
    assert made == {"classify": 4, "agent_process": 1, "rework": 1, "manual_draft": 1}
    assert sorted(job.args["action"] for job in office.box.enqueued("cleanup")) == ["check_sent", "done"]


def test_sync_4_the_label_that_classify_sets_is_not_taken_for_the_users_hand(office: Office) -> None:
    synced(office)
    place_of(office)
    for _ in range(3):
        office.run(sync)
    assert office.jobs("manual_draft") == []


def test_sync_5_last_history_id_and_the_jobs_are_one_transaction(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced(office)
    before = office.db.row("SELECT last_history_id FROM sync_state")
    place_of(office)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("examples.mail_assistant.tasks.upsert", fail)
        job = office.run(sync)
    assert (job.state, job.attempt) == (State.FAILED, 3)
    assert office.db.row("SELECT last_history_id FROM sync_state") == before
    assert office.jobs("classify") == []
    office.run(sync)
    after = office.db.row("SELECT last_history_id FROM sync_state")
    assert after is not None
    assert before is not None
    assert int(after["last_history_id"]) > int(before["last_history_id"])
    assert len(office.jobs("classify")) == 1


# --- classify -------------------------------------------------------------------------------------------------------


def test_classify_1_the_message_is_fetched(office: Office) -> None:
    place = place_of(office)
    assert office.run(classify, **place).result(timeout=0) == "needs_response"
    gone = office.run(classify, message_id="msg_0", thread_id="thread_0")
    assert gone.result(timeout=0) == "the message is gone"


def test_classify_2_a_classified_thread_is_skipped_unless_forced(office: Office) -> None:
    place = place_of(office)
    office.run(classify, **place)
    before = office.snapshot()
    assert office.run(classify, **place).result(timeout=0) == "already classified"
    assert office.snapshot() == before
    assert office.run(classify, **place, force=True).result(timeout=0) == "needs_response"


def test_classify_2_a_forced_job_is_not_swallowed_by_a_plain_one_that_waits(office: Office) -> None:
    place = place_of(office)
    jobs = [classify.enqueue(user_id="1", **place, force=force) for force in (False, True, False, True)]
    assert [job.id for job in jobs] == [jobs[0].id, jobs[1].id] * 2
    assert jobs[0].id != jobs[1].id


def test_classify_3_the_users_settings_count(office: Office) -> None:
    place = place_of(office, SPAM)
    assert office.run(classify, **place).result(timeout=0) == "fyi"
    assert "blacklist" in office.email(place["thread_id"])["reasoning"]
    assert office.llm_calls(place["thread_id"]) == []


def test_classify_4_the_model_decides_where_no_rule_does(office: Office) -> None:
    place = place_of(office, CONTRACT)
    assert office.run(classify, **place).result(timeout=0) == "action_required"
    assert office.llm_calls(place["thread_id"]) == ["classify"]


def test_classify_5_the_label_is_applied_and_on_reclassification_replaced(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(office, BILL)
    office.run(classify, **place)
    assert office.world.labels_of(place["thread_id"]) == {"Payment Request"}
    monkeypatch.setattr(llm, "CLASSES", (("waiting", "invoice"),))
    office.run(classify, **place, force=True)
    assert office.world.labels_of(place["thread_id"]) == {"Waiting"}


def test_classify_6_the_record_is_stored_once(office: Office) -> None:
    place = place_of(office, BILL)
    for force in (False, True):
        office.run(classify, **place, force=force)
    (row,) = office.db.rows("SELECT * FROM emails")
    assert (row["sender_email"], row["classification"]) == (BILL.sender, "payment_request")


def test_classify_7_a_classified_event_is_logged(office: Office) -> None:
    place = place_of(office, BILL)
    office.run(classify, **place)
    assert office.events(place["thread_id"]) == ["classified"]


def test_classify_8_needs_response_enqueues_a_draft(office: Office) -> None:
    place = place_of(office)
    office.run(classify, **place)
    office.box.assert_enqueued("draft", count=1, user_id="1", **place)


def test_classify_9_anything_else_is_skipped(office: Office) -> None:
    place = place_of(office, BILL)
    office.run(classify, **place)
    assert office.email(place["thread_id"])["status"] == "skipped"
    office.box.assert_enqueued("draft", count=0)


def test_classify_10_a_dangling_draft_is_trashed(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(office)
    office.run(classify, **place)
    assert len(office.world.drafts_of(place["thread_id"])) == 1
    monkeypatch.setattr(llm, "CLASSES", ())
    office.run(classify, **place, force=True)
    assert office.world.drafts_of(place["thread_id"]) == []
    assert office.world.labels_of(place["thread_id"]) == {"FYI"}
    assert office.email(place["thread_id"])["draft_id"] is None
