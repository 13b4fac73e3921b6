"""The sync engine: what has changed in a mailbox, and which jobs that asks for.

It only reads and plans. The task `sync` stores the plan together with `last_history_id`, in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from examples.mail_assistant import labels
from examples.mail_assistant.app import Desk, app
from examples.mail_assistant.gmail import HistoryGone, Mail
from examples.mail_assistant.router import route
from examples.mail_assistant.settings import settings


@dataclass(frozen=True)
class Wanted:
    """A downstream job."""

    job_type: str
    thread_id: str
    args: dict[str, Any]


@dataclass
class Plan:
    last_history_id: str
    jobs: dict[tuple[str, ...], Wanted] = field(default_factory=dict)
    full: bool = False

    def add(self, job_type: str, thread: str, /, **args: Any) -> None:
        """The same job once, however many records ask for it."""
        self.jobs.setdefault((job_type, *map(str, args.values())), Wanted(job_type, thread, args))


def thread_lane(user_id: str, thread_id: str) -> str:
    """Jobs of one thread run one after the other: no two of them move its labels and drafts at once."""
    return f"thread:{user_id}:{thread_id}"


def plan_sync(desk: Desk, state: dict[str, Any] | None, force_full: bool) -> Plan:
    if state is None:
        return full_sync(desk, desk.gmail.profile()["historyId"])
    if force_full:  # the history goes on from where it was: it also tells what a search cannot
        return full_sync(desk, state["last_history_id"])
    try:
        return incremental_sync(desk, state["last_history_id"])
    except HistoryGone:
        return full_sync(desk, desk.gmail.profile()["historyId"])


def full_sync(desk: Desk, last_history_id: str) -> Plan:
    """Search the inbox for unclassified e-mail. The history id is from before the search: nothing falls between."""
    plan = Plan(last_history_id, full=True)
    labelled = " ".join(f'-label:"{name}"' for name in labels.ALL)
    query = f"in:inbox newer_than:{settings.sync_full_sync_days}d {labelled}"
    for found in desk.gmail.search(query):
        if not _is_known(desk, found["threadId"]) and (mail := desk.gmail.message(found["id"])):
            _plan_new(desk, plan, mail)
    return plan


def incremental_sync(desk: Desk, since: str) -> Plan:
    plan = Plan(since)
    for record in desk.gmail.history(since):
        for item in record.get("messagesAdded", []):
            if "INBOX" in item["message"]["labelIds"] and (mail := desk.gmail.message(item["message"]["id"])):
                _plan_new(desk, plan, mail)
        for item in record.get("labelsAdded", []):
            _plan_label(desk, plan, item["message"], set(item["labelIds"]))
        for item in record.get("messagesDeleted", []):
            _plan_cleanup(plan, "check_sent", item["message"])
        plan.last_history_id = record["id"]
    return plan


def _plan_new(desk: Desk, plan: Plan, mail: Mail) -> None:
    """The way of a new message is the router's to say."""
    way = route(mail, desk.user.settings["routes"])
    if way.to == "agent":
        place = {"message_id": mail.id, "thread_id": mail.thread_id}
        plan.add("agent_process", mail.thread_id, **place, profile=way.profile, route_rule=way.rule)
    elif ("classify", mail.thread_id) not in {(job.job_type, job.thread_id) for job in plan.jobs.values()}:
        plan.add("classify", mail.thread_id, message_id=mail.id, thread_id=mail.thread_id)


def _plan_label(desk: Desk, plan: Plan, message: dict[str, Any], added: set[str]) -> None:
    if desk.label(labels.DONE) in added:
        _plan_cleanup(plan, "done", message)
    if desk.label(labels.REWORK) in added:
        plan.add("rework", message["threadId"], message_id=message["id"])
    if desk.label(labels.NEEDS_RESPONSE) in added and not _label_is_ours(desk, message["threadId"]):
        plan.add("manual_draft", message["threadId"], message_id=message["id"])


def _plan_cleanup(plan: Plan, action: str, message: dict[str, Any]) -> None:
    place = {"thread_id": message["threadId"], "message_id": message["id"]}
    plan.add("cleanup", message["threadId"], action=action, **place)


def _label_is_ours(desk: Desk, thread_id: str) -> bool:
    """The assistant sets Needs Response itself while it classifies; only the user's hand asks for a manual draft."""
    lane = thread_lane(desk.user.id, thread_id)
    at_work = app.jobs(lane=lane, state=("queued", "running"), limit=50).jobs
    if any(job.task in ("classify", "draft") for job in at_work):
        return True
    email = desk.email(thread_id)
    return email is not None and email["status"] == "drafted"


def _is_known(desk: Desk, thread_id: str) -> bool:
    """Classified, or seen by an agent. Threads whose classify job still waits are left out by its unique key."""
    run = "SELECT 1 AS found FROM agent_runs WHERE user_id = ? AND gmail_thread_id = ?"
    return desk.email(thread_id) is not None or desk.db.row(run, desk.user.id, thread_id) is not None
