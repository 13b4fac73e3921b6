"""The seven job types. The numbers are those of the document's lists.

Every task gets its user as an argument, talks to Gmail and the model first, and ends with one transaction that holds
what it has to write, the jobs that follow from it, and its own success.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from examples.mail_assistant import labels
from examples.mail_assistant.agent import PROFILES, run_agent
from examples.mail_assistant.app import Desk, app
from examples.mail_assistant.classifier import classify_mail
from examples.mail_assistant.db import Database, log_event, now, run, upsert
from examples.mail_assistant.drafting import (
    gather_context,
    generate,
    has_label,
    last_received,
    move_labels,
    notes_in,
    replace_draft,
    trash_drafts,
)
from examples.mail_assistant.lifecycle import handle_done, handle_rework, handle_sent_detection
from examples.mail_assistant.records import begin_agent_run, save_email, set_drafted
from examples.mail_assistant.settings import settings
from examples.mail_assistant.sync import plan_sync, thread_lane
from leasehold import Fail, Retry, SyncContext
from leasehold.types import Notification

COMMON: dict[str, Any] = {  # `TaskOptions`, but for type checkers that expect no setting in two places
    "retry": Retry(max_attempts=3, backoff=settings.retry_delay_seconds),
    "count_lost": True,  # an attempt is used up when it starts, also if its worker dies
    "on_failure": "skip",  # a failed job does not hold up the next of its user or thread
    "lease": settings.lease_seconds,
    "tags": ("user:{user_id}",),
}
THREAD_LANE = "thread:{user_id}:{thread_id}"


@app.task(**COMMON, lane="sync:{user_id}", unique="{user_id}:{history_id}:{force_full}")
def sync(ctx: SyncContext, user_id: str, history_id: str = "", force_full: bool = False) -> dict[str, Any]:
    """`history_id` is what a notification said. It makes the job unique, no more: the history is read from where the
    last sync ended, so a lost notification loses nothing."""
    desk = Desk.open(ctx, user_id)
    state = desk.db.row("SELECT * FROM sync_state WHERE user_id = ?", user_id)  # 1
    plan = plan_sync(desk, state, force_full)  # 2, 3
    tasks = {task.name: task for task in (classify, cleanup, rework, manual_draft, agent_process)}
    for job in plan.jobs.values():  # 4
        task = tasks[job.job_type].using(lane=thread_lane(user_id, job.thread_id))
        ctx.enqueue(task, user_id=user_id, **job.args)
    summary = {"jobs": len(plan.jobs), "full": plan.full, "last_history_id": plan.last_history_id}
    with ctx.complete(summary) as tx:  # 5
        values = {"user_id": user_id, "last_history_id": plan.last_history_id, "last_sync_at": now()}
        upsert(tx.connection, "sync_state", ("user_id",), values)
    return summary


@app.task(**COMMON, lane=THREAD_LANE, unique="{user_id}:{thread_id}:{force}")
def classify(ctx: SyncContext, user_id: str, message_id: str, thread_id: str, force: bool = False) -> str:
    """`force` is part of the unique key: without it a forced job would be swallowed by a plain one that waits."""
    desk = Desk.open(ctx, user_id)
    mail = desk.gmail.message(message_id)  # 1
    if mail is None:
        return "the message is gone"
    before = desk.email(thread_id)
    if before is not None and not force:  # 2
        return "already classified"
    verdict = ctx.step("classify", classify_mail, desk, mail)  # 3, 4
    new_label = desk.label(labels.BY_CLASSIFICATION[verdict.classification])
    if before is not None:  # 5: what an earlier classification has set goes
        old = (*labels.BY_CLASSIFICATION.values(), labels.OUTBOX)
        move_labels(desk, thread_id, add=[], remove=[name for name in old if desk.label(name) != new_label])
    desk.gmail.modify(message_id, add=[new_label], remove=[])
    needs_response = verdict.classification == "needs_response"
    if before is not None and not needs_response:  # 10
        trash_drafts(desk, thread_id)
    if needs_response:  # 8
        ctx.enqueue(draft, user_id=user_id, thread_id=thread_id, message_id=message_id)
    with ctx.complete(verdict.classification) as tx:
        status = "pending" if needs_response else "skipped"  # 9
        save_email(tx.connection, desk, mail, verdict.classification, verdict.reasoning, status)  # 6
        log_event(tx.connection, user_id, thread_id, "classified", ctx.job_id, **verdict.model_dump())  # 7
    return verdict.classification


@app.task(**COMMON, lane=THREAD_LANE, unique="{user_id}:{thread_id}")
def draft(ctx: SyncContext, user_id: str, thread_id: str, message_id: str) -> str:
    desk = Desk.open(ctx, user_id)
    email = desk.email(thread_id)
    if email is None or email["status"] != "pending":  # 1
        return "not pending"
    thread = desk.gmail.thread(thread_id)  # 2
    mail = last_received(desk, thread)
    if mail is None:
        return "the thread is gone"
    context = ctx.step("context", gather_context, desk, mail)  # 3
    body = ctx.step("generate", generate, desk, mail, thread, context)  # 4
    draft_id = ctx.step("gmail draft", replace_draft, desk, mail, body)  # 5, 6
    move_labels(desk, thread_id, add=[labels.OUTBOX], remove=[labels.NEEDS_RESPONSE])  # 7
    with ctx.complete("drafted") as tx:
        set_drafted(tx.connection, desk, thread_id, draft_id)  # 8
        log_event(tx.connection, user_id, thread_id, "draft_created", ctx.job_id, draft_id=draft_id)  # 9
    return "drafted"


@app.task(**COMMON, lane=THREAD_LANE, unique="{user_id}:{thread_id}:{action}")
def cleanup(
    ctx: SyncContext, user_id: str, action: Literal["done", "check_sent"], thread_id: str, message_id: str
) -> str:
    desk = Desk.open(ctx, user_id)
    return handle_done(desk, thread_id) if action == "done" else handle_sent_detection(desk, thread_id)


@app.task(**COMMON, unique="{user_id}:{message_id}")
def rework(ctx: SyncContext, user_id: str, message_id: str) -> str:
    desk = Desk.open(ctx, user_id)  # 2: with the user's communication styles
    mail = desk.gmail.message(message_id)  # 1
    return "the message is gone" if mail is None else handle_rework(desk, mail)  # 3


@app.task(**COMMON, unique="{user_id}:{message_id}")
def manual_draft(ctx: SyncContext, user_id: str, message_id: str) -> str:
    desk = Desk.open(ctx, user_id)
    mail = desk.gmail.message(message_id)  # 1
    if mail is None or not ctx.step("asked for", has_label, desk, mail, labels.NEEDS_RESPONSE):
        return "no longer labelled Needs Response"
    thread_id, email = mail.thread_id, desk.email(mail.thread_id)
    if email is not None and email["status"] == "drafted":  # 2
        return "already drafted"
    thread = desk.gmail.thread(thread_id)  # 3
    wish = ctx.step("notes", notes_in, desk, thread_id)  # 4
    with desk.db.transaction() as connection:  # 5
        save_email(connection, desk, mail, "needs_response", "labelled by the user", "pending")
    context = ctx.step("context", gather_context, desk, mail)  # 6
    body = ctx.step("generate", generate, desk, mail, thread, context, wish)
    draft_id = ctx.step("gmail draft", replace_draft, desk, mail, body, True)  # 7, 8
    move_labels(desk, thread_id, add=[labels.OUTBOX], remove=[labels.NEEDS_RESPONSE])  # 9
    with ctx.complete("drafted") as tx:
        set_drafted(tx.connection, desk, thread_id, draft_id)
        log_event(tx.connection, user_id, thread_id, "manual_draft_created", ctx.job_id, wish=wish)  # 10
    return "drafted"


@app.task(**COMMON, lane=THREAD_LANE, unique="{user_id}:{message_id}")
def agent_process(
    ctx: SyncContext, user_id: str, message_id: str, thread_id: str, profile: str, route_rule: str
) -> str:
    desk = Desk.open(ctx, user_id)
    if profile not in PROFILES:  # 1
        raise Fail(f"Agent profile {profile!r} is not configured")
    ran = "SELECT status FROM agent_runs WHERE user_id = ? AND gmail_message_id = ? AND job_id != ?"
    if desk.db.row(ran, user_id, message_id, ctx.job_id) is not None:
        return "an agent has seen this message"
    mail, thread = desk.gmail.message(message_id), desk.gmail.thread(thread_id)  # 2
    if mail is None:
        return "the message is gone"
    mail = PROFILES[profile].preprocess(mail)  # 3
    begin_agent_run(desk, mail, profile, route_rule)  # 4
    result = run_agent(desk, PROFILES[profile], mail, thread)  # 5
    with ctx.complete(result.status) as tx:
        run(  # 6
            tx.connection,
            "UPDATE agent_runs SET status = ?, tool_calls = ?, iterations = ?, final_message = ?,"
            " completed_at = ? WHERE job_id = ?",
            *(result.status, json.dumps(result.tool_calls), result.iterations, result.final_message),
            *(now(), ctx.job_id),
        )
        log_event(  # 7
            tx.connection, user_id, thread_id, "agent_processed", ctx.job_id, status=result.status
        )
    return result.status


@app.on("failed", tasks=["agent_process"])
def close_agent_run(event: Notification) -> None:
    """However the last attempt ended, by an error or with its worker, the record does not stay `running`."""
    db = Database(app.url)
    error = (event.data.get("error") or "").partition("\n")[0]
    statement = (
        "UPDATE agent_runs SET status = 'failed', final_message = ?, completed_at = ? WHERE job_id = ?"
    )
    try:
        db.write(statement, error, now(), event.job_id)
    finally:
        db.close()
