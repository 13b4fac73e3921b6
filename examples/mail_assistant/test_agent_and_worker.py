"""agent_process line by line, and what holds for every job."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from examples.mail_assistant.agent import parse_crisp
from examples.mail_assistant.app import mail_worker
from examples.mail_assistant.classifier import Verdict
from examples.mail_assistant.conftest import Office, place_of
from examples.mail_assistant.demo import KINDS, Kind
from examples.mail_assistant.gmail import Mail
from examples.mail_assistant.processes import wait_for
from examples.mail_assistant.tasks import agent_process, classify, draft, sync
from examples.mail_assistant.users import add_user
from leasehold import State
from leasehold.types import Job

DINNER, BILL, CRISP = KINDS[0], KINDS[1], KINDS[7]
ROUTE = {"profile": "pharmacy", "route_rule": "pharmacy_support"}


def processed(office: Office, kind: Kind = CRISP, **route: str) -> tuple[str, Job[Any]]:
    message = office.receive(kind)
    place = {"message_id": message["id"], "thread_id": message["threadId"]}
    return message["threadId"], office.run(agent_process, **place, **(ROUTE | route))


def the_run(office: Office) -> dict[str, Any]:
    (row,) = office.db.rows("SELECT * FROM agent_runs")
    return row


# --- agent_process --------------------------------------------------------------------------------------------------


def test_agent_1_a_profile_that_is_not_configured_fails_without_retry(office: Office) -> None:
    _, job = processed(office, profile="bakery")
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert "Agent profile 'bakery' is not configured" in (job.error or "")


def test_agent_2_message_and_thread_are_fetched(office: Office) -> None:
    _, job = processed(office)
    assert job.result(timeout=0) == "completed"
    gone = office.run(agent_process, message_id="msg_0", thread_id="thread_0", **ROUTE)
    assert gone.result(timeout=0) == "the message is gone"


def test_agent_3_what_the_helpdesk_forwards_is_unpacked(office: Office) -> None:
    mail = parse_crisp(Mail("1", "1", (), CRISP.sender, "Order", CRISP.body))
    assert (mail.sender, mail.body) == ("carl@home.example", "Where is my order #1001?")
    thread_id, _ = processed(office)
    (draft_id,) = office.world.drafts_of(thread_id)
    message = office.world.call("GET", f"/messages/{draft_id.removeprefix('draft_')}")
    assert {"name": "To", "value": "carl@home.example"} in message["payload"]["headers"]


def test_agent_4_a_run_is_on_record_from_its_start(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def look(*_: object) -> None:
        seen.append(the_run(office)["status"])
        raise ConnectionError("the model is away")

    monkeypatch.setattr("examples.mail_assistant.tasks.run_agent", look)
    _, job = processed(office)
    assert seen == ["running"] * 3
    assert job.state == State.FAILED
    office.box.drain()  # a worker's turn for the hook
    wait_for(lambda: the_run(office)["status"] == "failed", "the record is closed")
    assert the_run(office)["final_message"] == "ConnectionError: the model is away"


def test_agent_5_the_loop_calls_tools_until_the_model_is_done(office: Office) -> None:
    thread_id, _ = processed(office)
    (text,) = office.draft_texts(thread_id)
    assert "Your order: sent on Monday" in text
    assert office.llm_calls(thread_id) == ["agent"] * 3
    other, _ = processed(office, Kind("desk@crisp.example", "Help", "My order is late.", ""))
    assert office.world.labels_of(other) == {"Action Required"}


def test_agent_5_neither_the_model_nor_a_tool_is_called_twice_by_a_second_attempt(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([OSError("the disk is full")])

    def log_event(*_: object, **__: object) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure

    monkeypatch.setattr("examples.mail_assistant.tasks.log_event", log_event)
    thread_id, job = processed(office)
    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
    assert len(office.llm_calls(thread_id)) == 3
    assert len(office.world.drafts_of(thread_id)) == 1


def test_agent_6_the_record_has_the_results(office: Office) -> None:
    processed(office)
    row = the_run(office)
    assert (row["status"], row["iterations"], row["profile"]) == ("completed", 3, "pharmacy")
    assert [call["name"] for call in json.loads(row["tool_calls"])] == ["lookup_order", "reply"]
    assert row["final_message"] == "done with lookup_order, reply"


def test_agent_7_an_event_is_logged_and_a_second_job_changes_nothing(office: Office) -> None:
    thread_id, job = processed(office)
    assert office.events(thread_id) == ["agent_processed"]
    before = office.snapshot()
    again = office.run(agent_process, **_payload(job))
    assert again.result(timeout=0) == "an agent has seen this message"
    assert office.snapshot() == before


def _payload(job: Job[Any]) -> dict[str, Any]:
    return {name: value for name, value in job.args.items() if name != "user_id"}


# --- every job ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [sync, classify, draft], ids=lambda task: task.name)
def test_a_user_who_is_not_found_fails_the_job_without_retry(office: Office, task: Any) -> None:
    place = {} if task is sync else {"message_id": "msg_1", "thread_id": "thread_1"}
    job = task.enqueue(user_id="nobody", **place)
    office.box.drain()
    (row,) = office.db.rows("SELECT * FROM jobs WHERE user_id = 'nobody'")
    assert (row["status"], row["attempts"]) == ("failed", 1)
    assert "User nobody not found" in row["error_message"]
    assert job.refresh().state == State.FAILED


def test_an_error_is_tried_again_at_once_three_times_in_all(office: Office) -> None:
    message = office.receive(BILL)
    place = {"message_id": message["id"], "thread_id": message["threadId"]}
    office.world.control("/faults", {f"/messages/{message['id']}": 2})
    assert office.run(classify, **place).state == State.SUCCEEDED
    assert [(job["status"], job["attempts"]) for job in office.jobs("classify")] == [("completed", 3)]
    office.world.control("/faults", {f"/messages/{message['id']}": 3})
    failed = office.run(classify, **place, force=True)
    assert (failed.state, failed.attempt) == (State.FAILED, 3)
    assert "503" in (failed.error or "")


def test_each_user_has_a_mailbox_and_a_token_of_their_own(office: Office) -> None:
    other = type(office.world)(office.world.url, "other-" + office.world.address)
    other.make()
    add_user(office.shared, "2", other.address, other.address)
    mine, theirs = office.receive(BILL)["threadId"], other.receive(DINNER)["threadId"]
    for user_id in ("1", "2"):
        sync.enqueue(user_id=user_id)
    office.box.drain()
    assert (office.world.labels_of(mine), other.labels_of(theirs)) == ({"Payment Request"}, {"Outbox"})
    assert {row["user_id"] for row in office.db.rows("SELECT user_id FROM emails")} == {"1", "2"}
    other.http.close()


def test_three_jobs_are_worked_on_at_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three meet at the model, and a fourth does not come while they are there."""
    meeting, inside, most = threading.Barrier(3), [0], [0]

    def classify_mail(*_: object) -> Verdict:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        meeting.wait(60)
        inside[0] -= 1
        return Verdict(classification="fyi", reasoning="met")

    monkeypatch.setattr("examples.mail_assistant.tasks.classify_mail", classify_mail)
    for _ in range(9):
        classify.enqueue(user_id="1", **place_of(office, BILL))

    async def work() -> None:
        async with mail_worker():
            await asyncio.to_thread(wait_for, lambda: len(finished(office)) == 9, "all nine")

    asyncio.run(work())
    assert most == [3]


def finished(office: Office) -> list[dict[str, Any]]:
    return [job for job in office.jobs("classify") if job["status"] == "completed"]
